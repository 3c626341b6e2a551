{{/* What the chart reads out of config, the settings file. */}}

{{/* The directory of the state database; empty if the state is elsewhere or within storage.root. */}}
{{- define "mcp-adapter.stateDirectory" -}}
{{- $state := .Values.config.state_persistence -}}
{{- $path := dig "disk" "local_path" "" $state | default "" -}}
{{- $root := printf "%s/" (trimSuffix "/" .Values.config.storage.root) -}}
{{- if and $path (ne $state.type "redis") (not (hasPrefix $root $path)) -}}
{{- dir $path -}}
{{- end -}}
{{- end -}}

{{/* The Host that the adapter serves in any case; empty if it serves every one. */}}
{{- define "mcp-adapter.probeHost" -}}
{{- $hosts := .Values.config.core.allowed_hosts | default list -}}
{{- if and $hosts (not (has "*" $hosts)) -}}
{{- first $hosts -}}
{{- end -}}
{{- end -}}

{{/* Metrics: "on" if they are served, and their own port, empty if that is config.core.port. */}}
{{- define "mcp-adapter.metrics" -}}
{{- if dig "telemetry" "prometheus" "enabled" false .Values.config -}}on{{- end -}}
{{- end -}}
{{- define "mcp-adapter.metricsPort" -}}
{{- $port := dig "telemetry" "prometheus" "port" "" .Values.config | default "" -}}
{{- if and (include "mcp-adapter.metrics" .) $port -}}
{{- int $port -}}
{{- end -}}
{{- end -}}

{{/* core.shutdown_grace_seconds in whole seconds; empty if it is written in another unit. */}}
{{- define "mcp-adapter.shutdownGrace" -}}
{{- $grace := .Values.config.core.shutdown_grace_seconds | toString -}}
{{- if regexMatch "^[0-9]+(\\.[0-9]+)?s?$" $grace -}}
{{- trimSuffix "s" $grace | float64 | ceil | int -}}
{{- end -}}
{{- end -}}

{{- define "mcp-adapter.terminationGrace" -}}
{{- $grace := include "mcp-adapter.shutdownGrace" . -}}
{{- $needed := add (int .Values.preStopSleepSeconds) (int $grace) -}}
{{- with .Values.terminationGracePeriodSeconds -}}
{{- if and $grace (lt (int .) (int $needed)) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but a stopping pod needs %d: preStopSleepSeconds and config.core.shutdown_grace_seconds. Raise it, or leave it null." (int .) $needed) -}}
{{- end -}}
{{- int . -}}
{{- else -}}
{{- if not $grace -}}
{{- fail "config.core.shutdown_grace_seconds is not written in seconds. Write a number, or set terminationGracePeriodSeconds." -}}
{{- end -}}
{{- add $needed 30 -}}
{{- end -}}
{{- end -}}

{{/* Values that contradict each other. The form of each value is the business of values.schema.json. */}}
{{- define "mcp-adapter.refusals" -}}
{{- $config := .Values.config -}}
{{- $loopback := list "127.0.0.1" "localhost" "::1" -}}
{{- $distributed := eq .Values.deploymentMode "distributed" -}}
{{- if not $config.servers -}}
{{- fail "config.servers is empty. Name at least one MCP server; deploy/helm/values/quickstart.yaml shows one." -}}
{{- end -}}
{{- if has ($config.core.host | default "127.0.0.1") $loopback -}}
{{- fail "config.core.host is a loopback address, at which nobody outside the pod reaches the adapter. Write 0.0.0.0, or :: for IPv6." -}}
{{- end -}}
{{- range $name := list "ADAPTER_CORE__HOST" "ADAPTER_CORE__PORT" "ADAPTER_STORAGE__ROOT" -}}
{{- if hasKey $.Values.environment.env $name -}}
{{- fail (printf "environment.env.%s would change what the chart reads from config. Write it there." $name) -}}
{{- end -}}
{{- end -}}
{{- if and (not $distributed) (or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1)) -}}
{{- fail "deploymentMode standalone is one pod, since its state is a file. Set replicaCount to 1 and autoscaling.enabled to false, or deploymentMode to distributed." -}}
{{- end -}}
{{- if and $distributed (ne $config.state_persistence.type "redis") -}}
{{- fail "deploymentMode distributed needs a state store that all pods share. Set config.state_persistence.type to redis." -}}
{{- end -}}
{{- if and $distributed (not .Values.persistence.enabled) -}}
{{- fail "deploymentMode distributed needs a volume that all pods mount. Set persistence.enabled, with existingClaim or with accessModes [ReadWriteMany]." -}}
{{- end -}}
{{- if and $distributed (not .Values.persistence.existingClaim) (not (has "ReadWriteMany" .Values.persistence.accessModes)) -}}
{{- fail "deploymentMode distributed needs a volume that all pods mount. Set persistence.accessModes to [ReadWriteMany], or persistence.existingClaim." -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas." -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.targetCPUUtilizationPercentage) (not .Values.autoscaling.targetMemoryUtilizationPercentage) -}}
{{- fail "autoscaling has nothing to look at. Set autoscaling.targetCPUUtilizationPercentage or autoscaling.targetMemoryUtilizationPercentage." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts is empty. Name the host under which clients reach the adapter." -}}
{{- end -}}
{{- $metricsHost := dig "telemetry" "prometheus" "host" "" $config | default "127.0.0.1" -}}
{{- if and (include "mcp-adapter.metricsPort" .) (has $metricsHost $loopback) -}}
{{- fail "config.telemetry.prometheus.host is a loopback address, at which no Prometheus reaches the metrics. Write 0.0.0.0, or :: for IPv6." -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not (include "mcp-adapter.metrics" .)) -}}
{{- fail "serviceMonitor needs metrics. Set config.telemetry.prometheus.enabled." -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not (include "mcp-adapter.metrics" .)) (not (dig "telemetry" "enabled" false $config)) -}}
{{- fail "prometheusRule needs metrics. Set config.telemetry.prometheus.enabled, or config.telemetry.enabled to send them." -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not (include "mcp-adapter.metricsPort" .)) (not .Values.serviceMonitor.authorization) -}}
{{- fail "Metrics on config.core.port need the operator's token. Set serviceMonitor.authorization, or config.telemetry.prometheus.port for a port of their own." -}}
{{- end -}}
{{- end -}}

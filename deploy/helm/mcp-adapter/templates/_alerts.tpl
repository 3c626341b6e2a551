{{/* The groups of the alert rules: those of alerts/ without what prometheusRule.disabled names, and more. */}}
{{- define "mcp-adapter.alertGroups" -}}
{{- $fullname := include "mcp-adapter.fullname" . -}}
{{- $disabled := .Values.prometheusRule.disabled -}}
{{- $known := list -}}
{{- $groups := list -}}
{{- range $group := (.Files.Get "alerts/mcp-adapter.yaml" | fromYaml).groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- $known = append $known $rule.alert -}}
{{- if not (has $rule.alert $disabled) -}}
{{- /* The job of a ServiceMonitor is the name of the Service, which need not contain that of the chart. */ -}}
{{- if not (contains "mcp-adapter" $fullname) -}}
{{- $_ := set $rule "expr" (replace ".*mcp-adapter.*" (printf ".*mcp-adapter.*|%s" $fullname) $rule.expr) -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (set $group "rules" $rules) -}}
{{- end -}}
{{- end -}}
{{- range $name := $disabled -}}
{{- if not (has $name $known) -}}
{{- fail (printf "prometheusRule.disabled names %s, which is no alert of the chart. docs/observability.md lists them." $name) -}}
{{- end -}}
{{- end -}}
{{- concat $groups (.Values.prometheusRule.extraGroups | default list) | toYaml -}}
{{- end -}}

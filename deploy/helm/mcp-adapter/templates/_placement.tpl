{{/* On which nodes the pods run. */}}

{{- define "mcp-adapter.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- if .Values.strictAntiAffinity -}}
{{- $labels := include "mcp-adapter.selectorLabels" . | fromYaml -}}
{{- $term := dict "labelSelector" (dict "matchLabels" $labels) "topologyKey" "kubernetes.io/hostname" -}}
{{- $apart := dict "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- $affinity = merge $affinity $apart -}}
{{- end -}}
{{- with $affinity -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "mcp-adapter.topologySpread" -}}
{{- $labels := include "mcp-adapter.selectorLabels" . | fromYaml -}}
{{- $constraints := .Values.topologySpreadConstraints -}}
{{- if and (not $constraints) (eq .Values.deploymentMode "distributed") -}}
{{- $soft := dict "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $nodes := merge (dict "topologyKey" "kubernetes.io/hostname") $soft -}}
{{- $zones := merge (dict "topologyKey" "topology.kubernetes.io/zone") $soft -}}
{{- $constraints = list $nodes $zones -}}
{{- end -}}
{{- range $constraints }}
- {{ toYaml (merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" $labels))) | nindent 2 | trim }}
{{- end -}}
{{- end -}}

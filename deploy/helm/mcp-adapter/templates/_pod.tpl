{{/* Parts of the pod. */}}

{{- define "mcp-adapter.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* env and envFrom of a container, of its key "environment". */}}
{{- define "mcp-adapter.environment" -}}
{{- $variables := .env | default dict -}}
{{- $secret := .envFromSecret | default dict -}}
{{- if or $variables (and $secret.name $secret.keys) }}
env:
  {{- range $name, $value := $variables }}
  - name: {{ $name }}
    value: {{ $value | toString | quote }}
  {{- end }}
  {{- if $secret.name }}
  {{- range $secret.keys }}
  - name: {{ . }}
    valueFrom:
      secretKeyRef:
        name: {{ $secret.name }}
        key: {{ . }}
  {{- end }}
  {{- end }}
{{- end }}
{{- if and $secret.name (not $secret.keys) }}
envFrom:
  - secretRef:
      name: {{ $secret.name }}
{{- end }}
{{- end -}}

{{/* httpGet of a probe: the kubelet sends the pod's address as Host, which core.allowed_hosts would refuse. */}}
{{- define "mcp-adapter.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- with include "mcp-adapter.probeHost" .root }}
  httpHeaders:
    - name: Host
      value: {{ . | quote }}
  {{- end }}
{{ toYaml .timing }}
{{- end -}}

{{- define "mcp-adapter.filesMount" -}}
- name: data
  mountPath: {{ .Values.config.storage.root | quote }}
  {{- with .Values.persistence.subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end -}}

{{- define "mcp-adapter.mounts" -}}
- name: config
  mountPath: /etc/mcp-adapter
  readOnly: true
- name: tmp
  mountPath: /tmp
{{ include "mcp-adapter.filesMount" . }}
{{- with include "mcp-adapter.stateDirectory" . }}
- name: data
  mountPath: {{ . | quote }}
  {{- with $.Values.persistence.stateSubPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mcp-adapter.volumes" -}}
- name: config
  configMap:
    name: {{ include "mcp-adapter.fullname" . }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmpSizeLimit }}
- name: data
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ include "mcp-adapter.claimName" . }}
  {{- else }}
  emptyDir:
    {{- toYaml .Values.persistence.emptyDir | nindent 4 }}
  {{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A server beside the adapter, of an entry of upstreamServers. */}}
{{- define "mcp-adapter.upstreamServer" -}}
{{- $locked := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) -}}
name: {{ .server.name }}
# Starts before the adapter and ends after it, so that running calls can finish.
restartPolicy: Always
image: {{ printf "%s:%s" .server.image.repository (.server.image.tag | toString) | quote }}
imagePullPolicy: {{ .server.image.pullPolicy | default "IfNotPresent" }}
{{- with .server.startCommand }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .server.args }}
args:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "mcp-adapter.environment" (.server.environment | default dict) }}
{{ . | trim }}
{{- end }}
{{- with .server.port }}
ports:
  - containerPort: {{ int . }}
{{- end }}
{{- range $probe := list "livenessProbe" "readinessProbe" "startupProbe" }}
{{- with get $.server $probe }}
{{ $probe }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
securityContext:
  {{- toYaml (mergeOverwrite $locked (.server.securityContext | default dict)) | nindent 2 }}
resources:
  {{- toYaml (.server.resources | default dict) | nindent 2 }}
volumeMounts:
  {{- include "mcp-adapter.filesMount" .root | nindent 2 }}
  {{- with .server.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

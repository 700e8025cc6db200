{{- define "weft.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What every selector has. A release's name is unique in its namespace. */}}
{{- define "weft.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weft.labels" -}}
{{ include "weft.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "weft.metadata" -}}
name: {{ include "weft.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "weft.labels" . | nindent 2 }}
{{- end -}}

{{- define "weft.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "weft.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An image: a digest wins over a tag. */}}
{{- define "weft.image" -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag }}{{- end -}}
{{- end -}}

{{/* The Secret with the certificate. Nothing if there is none. */}}
{{- define "weft.tlsSecret" -}}
{{- if .Values.tls.secretName -}}
{{- .Values.tls.secretName -}}
{{- else if .Values.tls.certificate.enabled -}}
{{- include "weft.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* Something where the ports speak TLS. */}}
{{- define "weft.tls" -}}
{{- if or (include "weft.tlsSecret" .) .Values.settings.tls_cert -}}true{{- end -}}
{{- end -}}

{{/* The settings as variables. What a user sets wins over what the chart would. */}}
{{- define "weft.variables" -}}
{{- $ours := dict -}}
{{- if include "weft.tlsSecret" . -}}
{{- $ours = dict "tls_cert" "/credentials/tls/tls.crt" "tls_key" "/credentials/tls/tls.key" -}}
{{- if .Values.tls.mutual -}}
{{- $_ := set $ours "tls_client_ca" "/credentials/tls/ca.crt" -}}
{{- end -}}
{{- else if .Values.tls.mutual -}}
{{- fail "tls.mutual: the server has no certificate; give tls.secretName or tls.certificate" -}}
{{- end -}}
{{- if .Values.tokens.secretName -}}
{{- $_ := set $ours "tokens" (printf "/credentials/tokens/%s" .Values.tokens.key) -}}
{{- end -}}
{{- /* toJson writes a large number as digits, where a template would write 1.6e+07. */}}
{{- range $name, $value := merge (dict) .Values.settings $ours }}
WEFT_{{ upper $name }}: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end -}}

{{/* The release's pods as matchers of Prometheus: <Deployment>-<ReplicaSet>-<pod>.
Kubernetes cuts what is before the last five characters at 58: with a name of over 46 the last hyphen may go.
A pod of another release never matches: it has a hyphen more, or behind the last one ten characters at least. */}}
{{- define "weft.matcher" -}}
namespace="{{ .Release.Namespace }}",pod=~"{{ include "weft.fullname" . }}-[a-z0-9]+(-[a-z0-9]{5})?"
{{- end -}}

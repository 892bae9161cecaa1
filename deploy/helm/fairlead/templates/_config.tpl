{{- define "fairlead.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
clientConnection:
  acceptContentTypes: ""
  burst: 1000
  contentType: application/vnd.kubernetes.protobuf
  kubeconfig: ""
  qps: 500
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 12s
  renewDeadline: 8s
  resourceLock: leases
  resourceName: my-scheduler
  resourceNamespace: {{ .Release.Namespace }}
  retryPeriod: 1s
parallelism: 16
percentageOfNodesToScore: 0
profiles:
- schedulerName: my-scheduler
{{ end }}

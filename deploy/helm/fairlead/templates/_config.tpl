{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
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
{{ if regexMatch "(^|/)fairlead-scheduler([:@]|$)" .Values.scheduler.image -}}
- pluginConfig:
  - args:
      timeout: 5s
    name: FailoverBarrier
  - args: {}
    name: ForeignNominations
  - args:
      minCandidateNodesAbsolute: 100
      minCandidateNodesPercentage: 10
    name: PolitePreemption
  plugins:
    bind: {}
    filter: {}
    multiPoint:
      disabled:
      - name: DefaultPreemption
      enabled:
      - name: FailoverBarrier
      - name: ForeignNominations
      - name: PolitePreemption
    permit: {}
    placementGenerate: {}
    placementScore: {}
    postBind: {}
    postFilter: {}
    preBind: {}
    preEnqueue: {}
    preFilter: {}
    preScore: {}
    queueSort: {}
    reserve: {}
    score: {}
  schedulerName: my-scheduler
{{ else -}}
- schedulerName: my-scheduler
{{ end }}{{ end }}

# A definition in place of the Prometheus Operator's.
prepare() {
  ln -s "$REPOSITORY/deploy" deploy
  cat > definition.yaml <<'END'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {plural: prometheusrules, singular: prometheusrule, kind: PrometheusRule}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
END
  kubectl apply -f definition.yaml
  kubectl wait --for=condition=Established crd/prometheusrules.monitoring.coreos.com --timeout=30s
}
cleanup() { kubectl delete -f definition.yaml; }

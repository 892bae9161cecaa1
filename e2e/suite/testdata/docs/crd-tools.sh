prepare() {
  cat > crd.yaml <<'END'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              cronSpec: {type: string}
              replicas: {type: integer, maximum: 10}
END
  mkdir faulty
  sed 's|replicas: {.*|replicas: {type: integer, default: "string"}|' crd.yaml > faulty/crd.yaml
  echo '    additionalPrinterColumns: [{name: Spec, type: string, jsonPath: .spec.cron}]' >> faulty/crd.yaml
  cp crd.yaml crontabs.yaml
  kubectl apply -f crd.yaml
  kubectl wait --for=condition=Established crd/crontabs.stable.example.com --timeout=30s
  cat > crontab.yaml <<'END'
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: my-cron}
spec:
  cronSpec: "* * * * *"
  someRandomField: 42
  replicas: 15
END
  mkdir -p config/crd && cp crd.yaml config/crd/crontabs.yaml
  git init --quiet . && git add config
  git -c user.name=reader -c user.email=reader@example.com commit --quiet --message definitions
  git tag v1.2.0
}
cleanup() { kubectl delete crd crontabs.stable.example.com; }

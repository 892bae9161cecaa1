package politepreemption_test

import "k8s.io/apimachinery/pkg/runtime"

func unknown(args string) runtime.Object { return &runtime.Unknown{Raw: []byte(args)} }

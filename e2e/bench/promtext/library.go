// SPDX-License-Identifier: Apache-2.0

//go:build client_golang

package main

import "github.com/prometheus/client_golang/prometheus"

func init() {
	library = "client_golang"
	prometheus.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "calls_total", Help: "Calls."}))
}

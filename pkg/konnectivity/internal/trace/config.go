// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
)

// DefaultEndpoint is where a collector listens by default, as for kube-apiserver.
const DefaultEndpoint = "localhost:4317"

// Config is what a TracingConfiguration says.
type Config struct {
	// Endpoint is host:port of the collector's gRPC listener, without TLS.
	Endpoint string
	// SamplingRatePerMillion is the share of dials without a parent that are recorded. Dials with a parent follow it.
	SamplingRatePerMillion int
}

// file is Kubernetes' TracingConfiguration.
type file struct {
	APIVersion             string  `json:"apiVersion"`
	Kind                   string  `json:"kind"`
	Endpoint               *string `json:"endpoint"`
	SamplingRatePerMillion *int    `json:"samplingRatePerMillion"`
}

// versions are those that kube-apiserver reads, the newest first.
var versions = []string{"apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"}

// Load reads the file of --tracing-config-file.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("--tracing-config-file: %w", err)
	}
	c, err := parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("--tracing-config-file %s: %w", path, err)
	}
	return c, nil
}

func parse(data []byte) (Config, error) {
	var f file
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return Config{}, fmt.Errorf("not a TracingConfiguration: %w", err)
	}
	if f.Kind != "TracingConfiguration" || !slices.Contains(versions, f.APIVersion) {
		return Config{}, fmt.Errorf("kind %q of apiVersion %q: want kind TracingConfiguration of %s", f.Kind, f.APIVersion, versions[0])
	}
	c := Config{Endpoint: DefaultEndpoint}
	if f.Endpoint != nil {
		c.Endpoint = *f.Endpoint
	}
	if err := checkEndpoint(c.Endpoint); err != nil {
		return Config{}, fmt.Errorf("endpoint %q: %w: give host:port of the collector's gRPC listener, for example %s", c.Endpoint, err, DefaultEndpoint)
	}
	if rate := f.SamplingRatePerMillion; rate != nil {
		if *rate < 0 || *rate > million {
			return Config{}, fmt.Errorf("samplingRatePerMillion %d: give a number from 0 to %d", *rate, million)
		}
		c.SamplingRatePerMillion = *rate
	}
	return c, nil
}

func checkEndpoint(endpoint string) error {
	_, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port: %w", err)
	}
	return nil
}

const million = 1_000_000

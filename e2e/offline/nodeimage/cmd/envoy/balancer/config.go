// SPDX-License-Identifier: Apache-2.0

// Package balancer is a TCP load balancer that is configured by the files that kind writes for Envoy: a bootstrap file
// that names two others, which are replaced while the program runs, one with the listener and one with the servers and
// how their health is checked. [Run] is the way in.
package balancer

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"
)

// Config is what the files ask for.
type Config struct {
	// Listen is the address to listen on; empty: none yet.
	Listen string
	// Servers are host:port, in the order of the file.
	Servers []string
	// HealthPath is requested over HTTPS without verifying the certificate; empty: every server is healthy.
	HealthPath string
	// Interval, Timeout and the two thresholds of health checks.
	Interval, Timeout                    time.Duration
	UnhealthyThreshold, HealthyThreshold int
	// ConnectTimeout bounds a dial to a server.
	ConnectTimeout time.Duration
}

// The parts of Envoy's configuration that kind uses; everything else in the files is ignored.
type (
	bootstrap struct {
		DynamicResources struct {
			CDS source `json:"cds_config"`
			LDS source `json:"lds_config"`
		} `json:"dynamic_resources"`
	}
	source struct {
		Path struct {
			Path string `json:"path"`
		} `json:"path_config_source"`
	}
	address struct {
		Socket struct {
			Address string `json:"address"`
			Port    int    `json:"port_value"`
		} `json:"socket_address"`
	}
	listeners struct {
		Resources []struct {
			Address address `json:"address"`
		} `json:"resources"`
	}
	clusters struct {
		Resources []struct {
			ConnectTimeout string `json:"connect_timeout"`
			HealthChecks   []struct {
				Timeout            string `json:"timeout"`
				Interval           string `json:"interval"`
				UnhealthyThreshold int    `json:"unhealthy_threshold"`
				HealthyThreshold   int    `json:"healthy_threshold"`
				HTTP               struct {
					Path string `json:"path"`
				} `json:"http_health_check"`
			} `json:"health_checks"`
			LoadAssignment struct {
				Endpoints []struct {
					LBEndpoints []struct {
						Endpoint struct {
							Address address `json:"address"`
						} `json:"endpoint"`
					} `json:"lb_endpoints"`
				} `json:"endpoints"`
			} `json:"load_assignment"`
		} `json:"resources"`
	}
)

// paths reads the bootstrap file for the two files that it names.
func paths(file string) (cds, lds string, err error) {
	var b bootstrap
	if err := read(file, &b); err != nil {
		return "", "", err
	}
	cds, lds = b.DynamicResources.CDS.Path.Path, b.DynamicResources.LDS.Path.Path
	if cds == "" || lds == "" {
		return "", "", fmt.Errorf("%s: dynamic_resources names no files for clusters and listeners", file)
	}
	return cds, lds, nil
}

// load reads the two files.
func load(cds, lds string) (Config, error) {
	var l listeners
	var c clusters
	if err := read(lds, &l); err != nil {
		return Config{}, err
	}
	if err := read(cds, &c); err != nil {
		return Config{}, err
	}
	config := Config{Interval: 2 * time.Second, Timeout: 3 * time.Second, ConnectTimeout: time.Second, UnhealthyThreshold: 2, HealthyThreshold: 1}
	for _, listener := range l.Resources {
		config.Listen = listener.Address.hostPort()
	}
	for _, cluster := range c.Resources {
		for _, check := range cluster.HealthChecks {
			config.HealthPath = check.HTTP.Path
			config.UnhealthyThreshold, config.HealthyThreshold = max(1, check.UnhealthyThreshold), max(1, check.HealthyThreshold)
			if err := firstError(duration(check.Interval, &config.Interval), duration(check.Timeout, &config.Timeout)); err != nil {
				return Config{}, fmt.Errorf("%s: %w", cds, err)
			}
		}
		if err := duration(cluster.ConnectTimeout, &config.ConnectTimeout); err != nil {
			return Config{}, fmt.Errorf("%s: %w", cds, err)
		}
		for _, group := range cluster.LoadAssignment.Endpoints {
			for _, e := range group.LBEndpoints {
				config.Servers = append(config.Servers, e.Endpoint.Address.hostPort())
			}
		}
	}
	return config, nil
}

func (a address) hostPort() string {
	return net.JoinHostPort(a.Socket.Address, strconv.Itoa(a.Socket.Port))
}

func duration(text string, into *time.Duration) error {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err == nil {
		*into = d
	}
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// writeMaterial writes every file that the programs read: certificates,
// kubeconfigs, configuration files and the list of programs itself.
func (p *plan) writeMaterial(now time.Time) error {
	a, err := p.loadAuthorities(now)
	if err != nil {
		return err
	}
	if err := p.issueCertificates(a, now); err != nil {
		return err
	}
	if err := p.issueKubeconfigs(a, now); err != nil {
		return err
	}
	if p.tunnel() {
		kubeconfig, err := konnectivity.ServerKubeconfig(p.bundle, a.cluster, p.serverURL(), now)
		if err != nil {
			return err
		}
		if err := writeFile(p.Kubeconfig("konnectivity-server"), kubeconfig, 0o600); err != nil {
			return err
		}
		selector, err := apiserver.EgressSelectorConfigurationAt(p.bundle, p.localPath(""))
		if err != nil {
			return err
		}
		if err := writeFile(p.egressFile(), selector, 0o600); err != nil {
			return err
		}
	}
	if err := p.writeSchedulerFiles(); err != nil {
		return err
	}
	for _, write := range []func(authorities, time.Time) error{p.writeGatewayFiles, p.writeTunnelAPIFiles, p.writeOperatorFiles} {
		if err := write(a, now); err != nil {
			return err
		}
	}
	if err := p.writeAgentKubeconfigs(); err != nil {
		return err
	}
	return p.writeNodeFiles()
}

// writeAgentKubeconfigs writes a kubeconfig for each agent that counts Leases.
func (p *plan) writeAgentKubeconfigs() error {
	for i := range p.state.Agents {
		if !p.countsLeases() {
			break
		}
		kubeconfig, err := p.tokenKubeconfig(agentName(i), p.Token(apiToken(agentName(i))))
		if err != nil {
			return err
		}
		if err := writeFile(p.Kubeconfig(agentName(i)), kubeconfig, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeSchedulerFiles writes a kubeconfig that names the projected token and a
// configuration that names the kubeconfig, for every replica.
func (p *plan) writeSchedulerFiles() error {
	for i := range p.state.Schedulers {
		name := schedulerName(i)
		kubeconfig, err := p.tokenKubeconfig(name, p.Token(name))
		if err != nil {
			return err
		}
		if err := writeFile(p.Kubeconfig(name), kubeconfig, 0o600); err != nil {
			return err
		}
		config, err := scheduler.Configuration(p.bundle, p.Kubeconfig(name))
		if err != nil {
			return err
		}
		if err := writeFile(p.schedulerConfig(name), config, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// tokenKubeconfig makes a kubeconfig for the identity of a projected token.
func (p *plan) tokenKubeconfig(name, tokenFile string) ([]byte, error) {
	return yaml.Marshal(clientcmdv1.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: name,
		Clusters: []clientcmdv1.NamedCluster{{Name: "kubernetes", Cluster: clientcmdv1.Cluster{
			Server: p.serverURL(), CertificateAuthority: p.PKI("ca.crt"),
		}}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: name, AuthInfo: clientcmdv1.AuthInfo{TokenFile: tokenFile}}},
		Contexts:  []clientcmdv1.NamedContext{{Name: name, Context: clientcmdv1.Context{Cluster: "kubernetes", AuthInfo: name}}},
	})
}

// writeNodeFiles writes what kwok and the node gate read.
func (p *plan) writeNodeFiles() error {
	config, err := p.kwokConfiguration()
	if err != nil {
		return err
	}
	if err := writeFile(p.kwokConfig(), config, 0o600); err != nil {
		return err
	}
	if err := writeFile(p.podLog(), []byte(podLogText), 0o600); err != nil {
		return err
	}
	gate, err := json.MarshalIndent(p.nodeGateConfig(), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the node gate's configuration: %w", err)
	}
	return writeFile(p.nodeGateConfigFile(), gate, 0o600)
}

// writePrograms writes the supervisor's configuration. It deletes tokens of an
// earlier run, so that no program starts with an expired one.
func (p *plan) writePrograms() error {
	specs, err := p.programs()
	if err != nil {
		return err
	}
	todo := supervision{Programs: specs, Projections: p.projections(), AgentNodes: p.agentNodes(), Kubeconfig: p.AdminKubeconfig()}
	for _, projection := range todo.Projections {
		if err := os.MkdirAll(filepath.Dir(projection.File), 0o700); err != nil {
			return fmt.Errorf("creating a token's directory: %w", err)
		}
		if err := os.Remove(projection.File); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("removing an old token: %w", err)
		}
	}
	return cluster.WriteJSON(p.ProgramsFile(), todo)
}

// SPDX-License-Identifier: Apache-2.0

package suite_test

// Reasons of exceptions.
const (
	changesFairlead = "it changes the Fairlead of the cluster that tests share; e2e/kind/install runs it"
	onNode          = "it is for a control plane node with real files; e2e/kind/install runs it"
	noRegistry      = "there is neither skopeo nor a registry"
	noContainerd    = "there is no containerd"
	noContainers    = "it needs a container runtime; e2e/kind runs clusters of containers"
	otherMachine    = "it needs another machine with SSH; TestProxyViaSSH and others of this package start one"
	noKubeadm       = "there is no kubeadm, and it would change the node"
	noAgentPods     = "agents of an embedded cluster are processes"
	ciRuns          = "it builds or tests the repository, for minutes; CI runs this target"
	upAndDown       = "it builds, and changes the clusters of the user; TestMain and e2e/embedded run fairlead up and down"
	imagesOfRelease = "it builds for minutes, and CI leaves it out; pkg/imagetar, deploy/tools/images and deploy/tools/release test its programs with small ones"
	faultsForHours  = "it takes long, and CI leaves it out; CI runs the tests of which it consists, each once"
)

// docsCommon are exceptions of all pages.
var docsCommon = map[string]string{
	"make up":                         upAndDown,
	"make down":                       upAndDown,
	"make test ":                      "it runs this test; CI runs this target",
	"make test-unit ":                 "CI runs these tests as a part of make test",
	"make test-all ":                  faultsForHours,
	"make flakes ":                    faultsForHours,
	"make mutants ":                   "it runs the tests of a package with each change of its code; deploy/tools/mutants tests the program with a small module",
	"make e2e ":                       ciRuns,
	"E2E_RETAIN=1 make e2e ":          "it is a run of tests like this one",
	"make build ":                     "it builds the programs with which this test runs; CI runs the target, and prometheus; images: see make images",
	"make node-image":                 ciRuns,
	"make verify-monitoring":          ciRuns + ", in verify",
	"make monitoring":                 "it writes files of the repository; CI runs verify-monitoring, which compares them",
	"make images":                     imagesOfRelease,
	"make release ":                   imagesOfRelease,
	"make release-verify ":            imagesOfRelease,
	"make panels":                     "it scrapes a cluster for minutes, and CI leaves it out; TestMonitoring wants each series of the dashboards",
	"make chaos":                      faultsForHours,
	"make soak ":                      faultsForHours,
	"make soak-faults ":               faultsForHours,
	"make bench-calls":                "it measures for long on kind, and CI leaves it out; CI runs the tests of e2e/bench",
	"make e2e-kubernetes":             "it compiles for ten minutes, and CI leaves it out",
	"make e2e-upgrade ":               "it builds two versions, and CI leaves it out; docs/release.md asks for it before a release",
	"sudo fairlead controlplane ":     onNode,
	"sudo fairlead certs ":            onNode,
	"fairlead install -f bundle.yaml": changesFairlead,
	"sudo ctr ":                       noContainerd,
	"skopeo ":                         noRegistry,
	`eval "$(go -C e2e/offline `:      noContainers,
}

// asNode has a directory in place of this machine's files.
var asNode = [][2]string{
	{`(^|[\s=])/etc/kubernetes/`, "${1}etc/kubernetes/"},
	{`render -f bundle\.yaml`, "render -f static.yaml"},
}

// other has a bundle that can be installed next to the cluster's own.
var other = [][2]string{{`--pre -f bundle\.yaml`, "--pre -f other.yaml"}}

// docsPages has what is particular about pages. Files of the same name in testdata/docs prepare what a page's reader has.
var docsPages = map[string]docsPage{
	"README.md": {
		except: map[string]string{
			"sudo bin/fairlead controlplane install": onNode,
			"bin/fairlead install":                   changesFairlead,
		},
	},
	"docs/api.md": {
		except: map[string]string{"fairlead install --operator ": changesFairlead, "fairlead uninstall": changesFairlead},
		serve:  []string{"kubectl delete bundle default"}, // it waits until the next commands take the finalizer
	},
	"docs/control-plane.md": {
		except: map[string]string{
			"docker ":                        noContainers,
			"kubeadm init phase ":            noKubeadm,
			"sudo kubeadm certs renew ":      noKubeadm,
			"for f in /root/before-fairlead": "kubeadm has not issued the second certificate",
			"kubectl apply -f out":           changesFairlead,
			"fairlead uninstall":             changesFairlead,
			"kubectl -n kube-system rollout status daemonset/konnectivi": noAgentPods,
			"kubectl -n kube-system logs daemonset/konnectivity-agent":   noAgentPods,
		},
		replace: append([][2]string{
			{`127\.0\.0\.1:8134`, "127.0.0.1:$$PORT_KONNECTIVITY_SERVER_HEALTH"},
			{`/root/before-fairlead`, "before-fairlead"},
		}, asNode...),
	},
	"docs/crd-tools.md": {
		except: map[string]string{"fairlead crd convert": "it needs a conversion webhook; pkg/crd/convert serves one"},
		ends:   map[string]int{"fairlead crd lint crd.yaml": 1, "fairlead crd validate": 1},
		// The page shows the findings of another definition than that of the cluster.
		replace: [][2]string{{`lint crd\.yaml`, "lint faulty/crd.yaml"}},
	},
	"docs/gateway.md": {
		replace: append([][2]string{
			{`fairlead-gateway\.kube-system\.svc:1080`, "127.0.0.1:$$PORT_FAIRLEAD_GATEWAY"},
		}, asNode...),
	},
	"docs/high-availability.md": {
		except: map[string]string{
			"fairlead install -f ha.yaml":             changesFairlead,
			"fairlead verify -f ha.yaml --disruptive": "it stops programs that other tests use; e2e/kind/ha runs it with three control planes",
		},
	},
	"docs/install.md": {
		except: map[string]string{
			"helm ":                             "there is no Helm; deploy/tools/kustomize compares what the chart renders",
			"fairlead uninstall":                changesFairlead,
			"kubectl apply -f manifests/":       changesFairlead,
			"kubectl apply -k deploy/kustomize": changesFairlead,
			"kubectl scale":                     "the command before it is an exception",
		},
		ends: map[string]int{"fairlead diff": 1}, // fairlead up has made the cluster, and owns the fields
	},
	"docs/kind.md": {
		except: map[string]string{
			"bin/fairlead ":              noContainers,
			"docker save":                noContainers,
			"podman load":                noContainers,
			"nerdctl load":               noContainers,
			"sudo iptables":              "it changes the firewall of this machine",
			"go build -o /usr/local/bin": "it changes this machine",
			"cat >>/etc/containers":      "it changes this machine",
		},
	},
	"docs/proxy.md": {
		except: map[string]string{"fairlead proxy --via ssh": otherMachine},
		serve:  []string{"fairlead proxy --write-kubeconfig ~/.kube/config"},
		replace: [][2]string{
			{`(port=|localhost:)8080`, "${1}$$FREE_PORT"},
			{`proxy-fairlead-dev`, "proxy-$$SUITE_CONTEXT"},
		},
	},
	"docs/socks5.md": {
		except: map[string]string{"fairlead socks5 --via ssh": otherMachine, "kubectl --context socks5-CONTEXT": otherMachine},
		serve: []string{
			"fairlead socks5",
			"fairlead socks5 --listen :1080 --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt --access-review",
		},
		replace: [][2]string{
			{`^fairlead socks5( --listen :1080)?`, "fairlead socks5 --via api --listen 127.0.0.1:0"}, // simulated nodes forward no ports
		},
	},
	"docs/check.md": {replace: other},
	"docs/monitoring.md": {
		except: map[string]string{"PROVIDER=embedded FAIRLEAD_E2E_BIN": "it runs tests of this package; CI runs them"},
	},
	"docs/troubleshooting.md": {
		serve:   []string{"fairlead status --watch"},
		replace: other,
	},
	"docs/tunnel.md": {
		except: map[string]string{
			"go build -o upstream/":   "it compiles for minutes; e2e/tunnel compiles and runs both",
			"upstream/server ":        "e2e/tunnel runs it",
			"bin/konnectivity-agent ": "e2e/tunnel runs it with upstream's server",
		},
		none: "all commands need programs that are not Fairlead's",
	},
	"docs/tunnel-api.md": {
		except:  map[string]string{"fairlead-apiserver ": "its flags are of a Pod; fairlead up runs it"},
		replace: [][2]string{{`socks5 --via api`, "socks5 --via api --listen 127.0.0.1:0"}}, // port 1080 may be in use
	},
	"docs/upgrade.md": {
		ends: map[string]int{"fairlead diff": 1}, // fairlead up has made the cluster, and owns the fields
	},
	"docs/release.md": {
		except: map[string]string{"ctr ": noContainerd},
	},
	"docs/calls-benchmark.md": {none: "all commands are make's"},
	"docs/chaos.md":           {none: "all commands are make's"},
	"docs/sysdump.md": {
		replace: [][2]string{{`^sudo fairlead sysdump`, "fairlead sysdump --output node.tar.gz"}}, // this user has rights enough for this cluster
	},
	"docs/testing.md": {
		except: map[string]string{
			"E2E_HOME=/tmp/fl-":                     "it is a run of tests like this one",
			"go -C e2e/offline run ./dockerd stop":  noContainers,
			"go test -count 1 -v -run TestFloodOfS": "CI runs this test",
		},
		none: "all commands test the repository",
	},
	"docs/second-scheduler.md": {
		ends: map[string]int{"fairlead diff -f scheduler.yaml": 1},
		// The cluster of this suite has a my-scheduler, which binds the page's Pod. That of the page gets another name, and its Pods are simulated.
		replace: [][2]string{
			{`name: my-scheduler `, "name: docs-scheduler "},
			{`\{schedulerName: my-scheduler\}`, "{schedulerName: docs-scheduler}"},
			{`verify -f scheduler\.yaml`, "verify -f bundle.yaml"},
			{`^fairlead uninstall`, "fairlead uninstall --yes"}, // there is no terminal to confirm at
		},
	},
	"docs/scheduler-failover.md": {
		except: map[string]string{"go test ./e2e/embedded": "CI runs this test"},
		none:   "the command tests the repository",
	},
	"docs/node-image.md": {
		except: map[string]string{"bin/fairlead up --provider kind": noContainers},
		none:   "all commands make or use an image of nodes",
	},
}

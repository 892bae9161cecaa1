// SPDX-License-Identifier: Apache-2.0

// Command xtables replaces iptables and related commands in a container, and executes the variant, nft or legacy, that
// the node uses: each variant does not see the rules of the other. Kubelets leave a chain as a hint, as described at
// https://github.com/kubernetes-sigs/iptables-wrappers.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// modeFile remembers the answer for the life of the container.
const modeFile = "/run/xtables-mode"

func main() {
	mode, err := os.ReadFile(modeFile)
	if err != nil {
		mode = []byte(detect(save))
		_ = os.WriteFile(modeFile, mode, 0o644) // the next call asks again
	}
	program := multi(string(mode))
	name := filepath.Base(os.Args[0])
	err = syscall.Exec(program, append([]string{name}, os.Args[1:]...), os.Environ())
	fmt.Fprintf(os.Stderr, "%s: %s: %v\n", name, program, err)
	os.Exit(1)
}

func multi(mode string) string { return "/usr/sbin/xtables-" + mode + "-multi" }

// detect returns the mode with a kubelet's hint, otherwise the one with more rules, otherwise nft.
func detect(save func(mode, command string) string) string {
	rules := map[string]int{}
	for _, mode := range []string{"nft", "legacy"} {
		for _, command := range []string{"iptables-save", "ip6tables-save"} {
			out := save(mode, command)
			if strings.Contains(out, "KUBE-IPTABLES-HINT") || strings.Contains(out, "KUBE-KUBELET-CANARY") {
				return mode
			}
			rules[mode] += strings.Count("\n"+out, "\n-")
		}
	}
	if rules["legacy"] > rules["nft"] {
		return "legacy"
	}
	return "nft"
}

// save lists the rules of one mode; a mode that does not work here has none.
func save(mode, command string) string {
	var out bytes.Buffer
	//nolint:noctx // it ends by itself
	cmd := exec.Command(multi(mode), command)
	cmd.Stdout = &out
	_ = cmd.Run()
	return out.String()
}

// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kevinburke/ssh_config"
)

// sshTarget is a bastion.
type sshTarget struct {
	alias, user, host, port string
}

// String returns USER@HOST, or USER@HOST:PORT for an unusual port.
func (t sshTarget) String() string {
	if t.port == "22" {
		return t.user + "@" + t.host
	}
	return t.user + "@" + t.address()
}

func (t sshTarget) address() string { return net.JoinHostPort(t.host, t.port) }

// parseSSHTarget reads [USER@]HOST[:PORT]. An IPv6 address with a port is in brackets.
func parseSSHTarget(text string) (sshTarget, error) {
	var t sshTarget
	rest := text
	if i := strings.LastIndexByte(text, '@'); i >= 0 { // names of users may have one, as for ssh
		t.user, rest = text[:i], text[i+1:]
		if t.user == "" {
			return t, fmt.Errorf("bastion %q: write USER@HOST or USER@HOST:PORT", text)
		}
	}
	t.host = rest
	if host, port, err := net.SplitHostPort(rest); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return t, fmt.Errorf("bastion %q: %q is not a port: write USER@HOST:PORT", text, port)
		}
		t.host, t.port = host, port
	}
	t.host = strings.Trim(t.host, "[]")
	if t.host == "" || strings.HasPrefix(t.host, "-") || strings.HasPrefix(t.user, "-") || strings.ContainsAny(text, " \t\r\n\x00") || strings.Contains(t.host, "@") {
		return t, fmt.Errorf("bastion %q: write USER@HOST or USER@HOST:PORT", text)
	}
	t.alias = t.host
	return t, nil
}

// readConfig completes the target and the options from the client's configuration file and
// with ssh's defaults.
func (t *sshTarget) readConfig(o *SSHOptions) error {
	config, err := openSSHConfig(o.ConfigFile)
	if err != nil {
		return err
	}
	get := func(key string) string {
		v, _ := config.Get(t.alias, key)
		return v
	}
	for _, key := range []string{"ProxyJump", "ProxyCommand"} {
		if v := get(key); v != "" && !strings.EqualFold(v, "none") {
			return fmt.Errorf("the SSH configuration of %s sets %s, which is not supported: run ssh -N -L LOCALPORT:DESTINATION:22 through it, and name that port as the bastion", t.alias, key)
		}
	}
	if name := get("HostName"); name != "" {
		t.host = strings.ReplaceAll(name, "%h", t.alias)
	}
	t.user = cmp.Or(t.user, get("User"), currentUser())
	t.port = cmp.Or(t.port, get("Port"), "22")
	if len(o.KnownHosts) == 0 {
		o.KnownHosts = strings.Fields(get("UserKnownHostsFile"))
		for i := range o.KnownHosts {
			o.KnownHosts[i] = expandHome(o.KnownHosts[i])
		}
		if len(o.KnownHosts) == 0 {
			o.KnownHosts = []string{inHome("known_hosts")}
		}
		o.KnownHosts = append(o.KnownHosts, "/etc/ssh/ssh_known_hosts")
	}
	if len(o.IdentityFiles) == 0 {
		files, _ := config.GetAll(t.alias, "IdentityFile")
		for _, f := range files {
			o.IdentityFiles = append(o.IdentityFiles, expandHome(f))
		}
		if len(files) == 0 {
			o.IdentityFiles = []string{inHome("id_ed25519"), inHome("id_ecdsa"), inHome("id_rsa")}
		}
	}
	if o.AgentSocket = cmp.Or(o.AgentSocket, os.Getenv("SSH_AUTH_SOCK")); o.AgentSocket == "none" {
		o.AgentSocket = ""
	}
	o.IdentitiesOnly = o.IdentitiesOnly || strings.EqualFold(get("IdentitiesOnly"), "yes")
	return nil
}

func openSSHConfig(name string) (*ssh_config.Config, error) {
	optional := name == ""
	if name == "none" {
		return &ssh_config.Config{}, nil
	}
	name = cmp.Or(name, inHome("config"))
	f, err := os.Open(name)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return &ssh_config.Config{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the SSH configuration: %w", err)
	}
	defer f.Close()
	config, err := ssh_config.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("read the SSH configuration %s: %w: correct it, or choose another file with --ssh-config, or none", name, err)
	}
	return config, nil
}

func currentUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

func expandHome(path string) string {
	path = strings.Trim(path, `"`)
	for _, prefix := range []string{"~/", "%d/", "${HOME}/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			return filepath.Join(home(), rest)
		}
	}
	return path
}

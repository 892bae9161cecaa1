// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxReadable is how much of an ID is in the name that is made of it.
const maxReadable = 200

// nameFor returns the name of the object for an ID. An agent chooses its ID itself, so it need not be a name.
func nameFor(id string) string {
	if len(validation.IsDNS1123Subdomain(id)) == 0 {
		return id
	}
	return readable(id) + hash(id)
}

// readable returns what of an ID may be in a name, with a dash behind it.
func readable(id string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, id)
	name = strings.Trim(name[:min(len(name), maxReadable)], "-")
	if name == "" {
		return ""
	}
	return name + "-"
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// uidFor returns the UID of an object: the same in each replica.
func uidFor(parts ...string) types.UID {
	return types.UID(uuid.NewSHA1(uuid.Nil, []byte("tunnel.fairlead.dev\x00"+strings.Join(parts, "\x00"))).String())
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// ChangeKubeconfig changes one kubeconfig file under the lock that kubectl also uses. It
// preserves the file's owner and mode. It calls change with the content, which is nil if
// there is no file, and writes the content that change returns. If that is nil, the file
// stays as it is; if its length is 0, the file is removed.
func ChangeKubeconfig(file string, change func(old []byte) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	unlock, err := lockKubeconfig(file)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return unreadable(file, err)
	}
	data, err := change(old)
	switch {
	case err != nil || data == nil:
		return err
	case len(data) == 0:
		return os.Remove(resolve(file))
	}
	return fsutil.Rewrite(resolve(file), data, 0o600)
}

prepare() {
  kubectl config set-context staging --cluster "$SUITE_CONTEXT" --user "$SUITE_CONTEXT"
  printf '#!/bin/sh\nexec kubectl get --raw /version\n' > my-script
  chmod +x my-script
}
cleanup() { :; }

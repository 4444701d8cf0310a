// TlsContext: the TLS identity and client checks of an HTTP server, from the files of --tls-dir, by the same rules as
// for gRPC (common/rpc/tls_files.h). A client may present a certificate signed by ca.crt; the handshake fails for any
// other certificate.
//
// Thread-safe. Invariants:
//   1. Replaced files take effect for new connections within `refresh`, when the next connection arrives; unusable
//      files leave the old ones in use, with a notice.
//   2. Nobody waits for the files: one thread at a time reads them, the others use the current ones.
#pragma once

#include <openssl/ossl_typ.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/tls_files.h"

namespace cairn {

class TlsContext {
 public:
  // now: of a steady clock. Errors: INVALID_ARGUMENT names the file and the problem.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Read(const std::string& directory, absl::Duration refresh,
                                                          absl::Time now, TlsNotice notice);

  // The host names in the certificate.
  std::vector<std::string> names();

  // The state of a new connection, for SSL_accept. The caller frees it. Null: out of memory.
  SSL* NewConnection(absl::Time now);

 private:
  using Context = std::shared_ptr<SSL_CTX>;

  TlsContext(const std::string& directory, absl::Duration refresh, absl::Time now, TlsFiles files, Context context,
             TlsNotice notice);

  static absl::StatusOr<Context> MakeContext(const TlsFiles& files);
  absl::Status Take(const TlsFiles& files);

  const absl::Duration refresh_;
  TlsRenewal renewal_;  // used only by the thread that has set looking_
  absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
  Context context_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_);
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

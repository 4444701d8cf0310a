// TlsContext: what an HTTP server shows and asks of browsers and scrapers: the files of --tls-dir, by the rule by which
// gRPC takes them (common/rpc/tls_files.h). A client may show a certificate that ca.crt signed; one that it did not
// sign ends the handshake.
//
// Thread-safe. Invariants:
//   1. Files that are replaced are read again within `refresh` of a connection, for those made from then on; what
//      cannot be used leaves the ones before, and is said.
//   2. Nobody waits for the files: one thread at a time reads them, the others go on with those in use.
#pragma once

#include <openssl/ossl_typ.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/tls_files.h"

namespace cairn {

class TlsContext {
 public:
  // now: steady. Errors: INVALID_ARGUMENT names the file and says what is wrong with it.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Read(const std::string& directory, absl::Duration refresh,
                                                          absl::Time now, TlsNotice notice);

  // A new connection's state, for SSL_accept. The caller frees it. Null: out of memory.
  SSL* NewConnection(absl::Time now);

 private:
  using Context = std::shared_ptr<SSL_CTX>;

  TlsContext(const std::string& directory, absl::Duration refresh, absl::Time now, TlsFiles files, Context context,
             TlsNotice notice);

  static absl::StatusOr<Context> MakeContext(const TlsFiles& files);
  absl::Status Take(const TlsFiles& files);

  const absl::Duration refresh_;
  TlsRenewal renewal_;  // of the one who has set looking_
  absl::Mutex mutex_;
  Context context_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_);
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

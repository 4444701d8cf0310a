// TlsContext: what an HTTP server shows and asks of browsers and scrapers: the certificate of --tls-dir (the files of common/rpc/credentials.h).
// A client may show one that ca.crt signed; one that it did not sign ends the handshake.
//
// Thread-safe. Invariant: files that are replaced are read again within `refresh`, for connections made from then on; what cannot be read leaves
// the ones before.
#pragma once

#include <openssl/ossl_typ.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

class TlsContext {
 public:
  // Errors: INVALID_ARGUMENT names the directory and says what is wrong.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Read(const std::string& directory, absl::Duration refresh);

  // A new connection's state, for SSL_accept. The caller frees it. Null: out of memory.
  SSL* NewConnection(absl::Time now);

 private:
  using Context = std::shared_ptr<SSL_CTX>;

  TlsContext(std::string directory, absl::Duration refresh) : directory_(std::move(directory)), refresh_(refresh) {}
  absl::StatusOr<Context> Load() const;
  std::string Stamps() const;  // changes with the files

  const std::string directory_;
  const absl::Duration refresh_;
  absl::Mutex mutex_;
  Context context_ ABSL_GUARDED_BY(mutex_);
  std::string stamps_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cairn

#include "common/http/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Read(const std::string& directory, absl::Duration refresh) {
  std::unique_ptr<TlsContext> out(new TlsContext(directory, refresh));
  CAIRN_ASSIGN_OR_RETURN(Context context, out->Load());
  absl::MutexLock lock(&out->mutex_);
  out->context_ = std::move(context);
  out->stamps_ = out->Stamps();
  return out;
}

absl::StatusOr<TlsContext::Context> TlsContext::Load() const {
  ERR_clear_error();
  const Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  const std::string authorities = directory_ + "/ca.crt", certificate = directory_ + "/tls.crt", key = directory_ + "/tls.key";
  SSL_CTX* const c = context.get();
  const bool good = c != nullptr && SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1 &&
                    SSL_CTX_use_certificate_chain_file(c, certificate.c_str()) == 1 &&
                    SSL_CTX_use_PrivateKey_file(c, key.c_str(), SSL_FILETYPE_PEM) == 1 && SSL_CTX_check_private_key(c) == 1 &&
                    SSL_CTX_load_verify_locations(c, authorities.c_str(), nullptr) == 1;
  if (!good) {
    char why[256] = "";
    ERR_error_string_n(ERR_get_error(), why, sizeof(why));
    return absl::InvalidArgumentError(absl::StrCat("--tls-dir: ", directory_, ": ca.crt, tls.crt and tls.key cannot be used: ", why));
  }
  SSL_CTX_set_client_CA_list(c, SSL_load_client_CA_file(authorities.c_str()));
  X509_STORE_set_flags(SSL_CTX_get_cert_store(c), X509_V_FLAG_PARTIAL_CHAIN);  // as gRPC: ca.crt may hold an authority that another one signed
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);                             // asked for; HttpServer decides what is answered without
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

std::string TlsContext::Stamps() const {
  std::string stamps;
  for (const char* name : {"/ca.crt", "/tls.crt", "/tls.key"}) {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(directory_ + name, error);
    absl::StrAppend(&stamps, error ? 0 : time.time_since_epoch().count(), " ");
  }
  return stamps;
}

SSL* TlsContext::NewConnection(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (now - looked_at_ >= refresh_) {
    looked_at_ = now;
    if (const std::string stamps = Stamps(); stamps != stamps_) {
      const absl::StatusOr<Context> context = Load();
      if (context.ok()) {
        context_ = *context;
        stamps_ = stamps;
      } else {
        LogWarning("http: the certificate before stays in use: %s", context.status().message());
      }
    }
  }
  return SSL_new(context_.get());
}

}  // namespace cairn

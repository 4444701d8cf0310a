#include "common/http/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/pem.h"

namespace cairn {
namespace {

bool UseIdentity(SSL_CTX* context, const std::string& pem) {
  const std::vector<Certificate> chain = ReadCertificates(pem);
  if (chain.empty() || SSL_CTX_use_certificate(context, chain[0].get()) != 1) return false;
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return false;
  }
  const PrivateKey key = ReadPrivateKey(pem);
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1;
}

bool UseAuthorities(SSL_CTX* context, const std::string& pem) {
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  X509_STORE_set_flags(store,
                       X509_V_FLAG_PARTIAL_CHAIN);  // as in gRPC: ca.crt may hold an intermediate authority
  for (const Certificate& authority : ReadCertificates(pem)) {
    if (X509_STORE_add_cert(store, authority.get()) != 1 || SSL_CTX_add_client_CA(context, authority.get()) != 1)
      return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<TlsContext::Context> TlsContext::MakeContext(const TlsFiles& files) {
  ERR_clear_error();
  const Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  SSL_CTX* const c = context.get();
  if (c == nullptr || SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1 || !UseIdentity(c, files.identity) ||
      !UseAuthorities(c, files.authorities)) {
    char why[256] = "";
    ERR_error_string_n(ERR_get_error(), why, sizeof(why));
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-dir: ca.crt, tls.crt and tls.key cannot be used for HTTPS: ", why));
  }
  // a certificate is requested; HttpServer decides which requests need one
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ERR_clear_error();
  return context;
}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Read(const std::string& directory, absl::Duration refresh,
                                                             absl::Time now, TlsNotice notice) {
  CAIRN_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(directory, TlsOwner::kNode));
  CAIRN_ASSIGN_OR_RETURN(Context context, MakeContext(files));
  std::vector<std::string> names = DnsNamesOf(ReadCertificates(files.identity)[0].get());
  std::unique_ptr<TlsContext> made(
      new TlsContext(directory, refresh, now, std::move(files), std::move(context), std::move(notice)));
  const absl::MutexLock lock(&made->mutex_);
  made->names_ = std::move(names);
  return made;
}

TlsContext::TlsContext(const std::string& directory, absl::Duration refresh, absl::Time now, TlsFiles files,
                       Context context, TlsNotice notice)
    : refresh_(refresh),
      renewal_(
          directory, TlsOwner::kNode, std::move(files), [this](const TlsFiles& renewed) { return Take(renewed); },
          std::move(notice)),
      context_(std::move(context)),
      looked_at_(now) {}

absl::Status TlsContext::Take(const TlsFiles& files) {
  CAIRN_ASSIGN_OR_RETURN(Context context, MakeContext(files));
  std::vector<std::string> names = DnsNamesOf(ReadCertificates(files.identity)[0].get());
  absl::MutexLock lock(&mutex_);
  context_ = std::move(context);
  names_ = std::move(names);
  return absl::OkStatus();
}

std::vector<std::string> TlsContext::names() {
  absl::MutexLock lock(&mutex_);
  return names_;
}

SSL* TlsContext::NewConnection(absl::Time now) {
  bool look = false;
  {
    absl::MutexLock lock(&mutex_);
    look = !looking_ && now - looked_at_ >= refresh_;
    if (look) looking_ = true, looked_at_ = now;
  }
  if (look) renewal_.Look();
  absl::MutexLock lock(&mutex_);
  if (look) looking_ = false;
  return SSL_new(context_.get());
}

}  // namespace cairn

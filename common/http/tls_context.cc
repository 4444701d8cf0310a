#include "common/http/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using Memory = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Memory Open(const std::string& pem) {
  return Memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
}

// The next one; PEM of other kinds is passed over. Null: none is left.
Certificate Next(BIO* pem) { return Certificate(PEM_read_bio_X509(pem, nullptr, nullptr, nullptr), X509_free); }

// A key with a pass phrase is none: nobody is there to type it.
int NoPassPhrase(char*, int, int, void*) { return -1; }

bool UseIdentity(SSL_CTX* context, const std::string& pem) {
  const Memory certificates = Open(pem), keys = Open(pem);
  if (SSL_CTX_use_certificate(context, Next(certificates.get()).get()) != 1) return false;
  while (const Certificate between = Next(certificates.get())) {
    if (SSL_CTX_add1_chain_cert(context, between.get()) != 1) return false;
  }
  const Key key(PEM_read_bio_PrivateKey(keys.get(), nullptr, NoPassPhrase, nullptr), EVP_PKEY_free);
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1;
}

bool UseAuthorities(SSL_CTX* context, const std::string& pem) {
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  X509_STORE_set_flags(store,
                       X509_V_FLAG_PARTIAL_CHAIN);  // as gRPC: ca.crt may hold an authority that another one signed
  const Memory certificates = Open(pem);
  while (const Certificate authority = Next(certificates.get())) {
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
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);  // asked for; HttpServer decides what is answered without
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
  return std::unique_ptr<TlsContext>(
      new TlsContext(directory, refresh, now, std::move(files), std::move(context), std::move(notice)));
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
  absl::MutexLock lock(&mutex_);
  context_ = std::move(context);
  return absl::OkStatus();
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

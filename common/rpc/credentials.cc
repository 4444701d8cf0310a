#include "common/rpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn {
namespace {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using File = std::unique_ptr<FILE, Freer<fclose>>;

struct TlsFiles {
  explicit TlsFiles(const std::string& directory)
      : authorities(directory + "/ca.crt"), certificate(directory + "/tls.crt"), key(directory + "/tls.key") {}
  std::string authorities, certificate, key;
};

absl::Status Wrong(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--tls-dir: ", path, ": ", what));
}

absl::StatusOr<File> Open(const std::string& path) {
  File file(fopen(path.c_str(), "re"));
  if (file == nullptr) return Wrong(path, std::string(absl::ErrnoToStatus(errno, "cannot be read").message()));
  return file;
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const File file, Open(path));
  std::vector<Certificate> out;
  while (X509* read = PEM_read_X509(file.get(), nullptr, nullptr, nullptr)) out.emplace_back(read);
  if (out.empty()) return Wrong(path, "holds no certificate in PEM (-----BEGIN CERTIFICATE-----)");
  return out;
}

// A key with a pass phrase is none: nobody is there to type it.
int NoPassPhrase(char*, int, int, void*) { return -1; }

absl::StatusOr<Key> ReadKey(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const File file, Open(path));
  Key key(PEM_read_PrivateKey(file.get(), nullptr, NoPassPhrase, nullptr));
  if (key == nullptr) return Wrong(path, "holds no private key in PEM that can be read without a pass phrase");
  return key;
}

// What every handshake would fail of, said once at the start.
absl::Status Check(const TlsFiles& files) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Certificate> authorities, ReadCertificates(files.authorities));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ReadCertificates(files.certificate));
  CAIRN_ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    return Wrong(files.key, absl::StrCat("is not the key of ", files.certificate));
  }
  const std::unique_ptr<X509_STORE, Freer<X509_STORE_free>> store(X509_STORE_new());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);  // as gRPC: ca.crt may hold an authority that another one signed
  for (const Certificate& authority : authorities) X509_STORE_add_cert(store.get(), authority.get());
  const std::unique_ptr<STACK_OF(X509), Freer<[](STACK_OF(X509)* stack) { sk_X509_free(stack); }>> between(sk_X509_new_null());
  for (const Certificate& certificate : chain) sk_X509_push(between.get(), certificate.get());
  const std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between.get());
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  return Wrong(files.certificate, absl::StrFormat("is not accepted by the authorities of %s: %s", files.authorities,
                                                  X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
}

class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Of the process; written once by UseTls, never taken down: gRPC's threads may use it to the last.
struct Credentials {
  std::shared_ptr<grpc::ServerCredentials> server = grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::InsecureChannelCredentials();
  bool tls = false;
};
Credentials& OfThisProcess() {
  static Credentials& credentials = *new Credentials;
  return credentials;
}

}  // namespace

absl::Status UseTls(const std::string& directory, absl::Duration refresh) {
  using namespace grpc::experimental;  // NOLINT: gRPC 1.51 has reloading credentials there alone
  if (directory.empty()) return absl::OkStatus();
  const TlsFiles files(directory);
  CAIRN_RETURN_IF_ERROR(Check(files));
  // The threads that gRPC starts take no signals: they are for those of the program that wait for them.
  const AllSignalsBlocked blocked;
  const auto seconds = static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(refresh)));
  const auto provider =
      std::make_shared<FileWatcherCertificateProvider>(files.key, files.certificate, files.authorities, seconds);
  TlsServerCredentialsOptions server(provider);
  server.watch_root_certs();
  server.watch_identity_key_cert_pairs();
  server.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  TlsChannelCredentialsOptions channel;
  channel.set_certificate_provider(provider);
  channel.watch_root_certs();
  channel.watch_identity_key_cert_pairs();
  Credentials& mine = OfThisProcess();
  mine.server = TlsServerCredentials(server);
  mine.channel = TlsCredentials(channel);
  mine.tls = true;
  return absl::OkStatus();
}

bool UsesTls() { return OfThisProcess().tls; }

std::string TlsHint(const std::string& error) {
  if (absl::StrContains(error, "refused") || absl::StrContains(error, "unreachable")) return "";
  if (UsesTls()) return "; does it speak TLS, with a certificate that --tls-dir's ca.crt accepts and that has this name?";
  return "; does it speak TLS (--tls-dir)?";
}

std::shared_ptr<grpc::ServerCredentials> TcpServerCredentials() { return OfThisProcess().server; }
std::shared_ptr<grpc::ChannelCredentials> TcpChannelCredentials() { return OfThisProcess().channel; }

}  // namespace cairn

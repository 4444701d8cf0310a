#include "common/rpc/tls_files.h"

#include <fcntl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/rpc/pem.h"
#include "common/rpc/revocations.h"

namespace cairn {
namespace {

using File = std::unique_ptr<FILE, Freer<fclose>>;

struct Paths {
  explicit Paths(const std::string& directory)
      : authorities(directory + "/ca.crt"),
        certificate(directory + "/tls.crt"),
        key(directory + "/tls.key"),
        revoked(directory + "/crl.pem") {}
  std::string authorities, certificate, key, revoked;
};

absl::Status Wrong(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--tls-dir: ", path, ": ", what));
}

absl::StatusOr<std::string> Read(const std::string& path) {
  const File file(fopen(path.c_str(), "re"));
  if (file == nullptr) return Wrong(path, std::string(absl::ErrnoToStatus(errno, "cannot be read").message()));
  std::string text(kTlsFileBytesMax + 1, '\0');
  text.resize(fread(text.data(), 1, text.size(), file.get()));
  if (ferror(file.get()) != 0) return Wrong(path, std::string(absl::ErrnoToStatus(errno, "cannot be read").message()));
  if (text.size() > kTlsFileBytesMax) return Wrong(path, "is longer than 1 MiB; is it PEM?");
  return text;
}

absl::StatusOr<std::vector<Certificate>> Certificates(const std::string& path, const std::string& text) {
  std::vector<Certificate> out = ReadCertificates(text);
  if (out.empty()) return Wrong(path, "holds no certificate in PEM (-----BEGIN CERTIFICATE-----)");
  return out;
}

absl::Status CheckKey(const Paths& paths, const std::string& text, X509* certificate) {
  const PrivateKey key = ReadPrivateKey(text);
  if (key == nullptr) return Wrong(paths.key, "holds no private key in PEM that can be read without a pass phrase");
  if (X509_check_private_key(certificate, key.get()) == 1) return absl::OkStatus();
  return Wrong(paths.key, absl::StrCat("is not the key of ", paths.certificate));
}

// OpenSSL's verdict on chain[0], which must be in `trusted` or be signed by an authority that is trusted. nullptr:
// valid. expires: the first of the certificates that it rests on does, the authority's among them.
const char* WhatIsWrong(const std::vector<Certificate>& trusted, const std::vector<Certificate>& chain,
                        absl::Time* expires) {
  const std::unique_ptr<X509_STORE, Freer<X509_STORE_free>> store(X509_STORE_new());
  X509_STORE_set_flags(store.get(),
                       X509_V_FLAG_PARTIAL_CHAIN);  // as in gRPC: ca.crt may hold an intermediate authority
  for (const Certificate& one : trusted) X509_STORE_add_cert(store.get(), one.get());
  const std::unique_ptr<STACK_OF(X509), Freer<[](STACK_OF(X509) * stack) { sk_X509_free(stack); }>> between(
      sk_X509_new_null());
  for (const Certificate& certificate : chain) sk_X509_push(between.get(), certificate.get());
  const std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between.get());
  if (X509_verify_cert(context.get()) == 1) {
    const STACK_OF(X509)* verified = X509_STORE_CTX_get0_chain(context.get());
    for (int i = 0; i < sk_X509_num(verified); ++i) *expires = std::min(*expires, ExpiryOf(sk_X509_value(verified, i)));
    return nullptr;
  }
  return X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
}

absl::Status CheckChain(const Paths& paths, const std::vector<Certificate>& authorities,
                        const std::vector<Certificate>& chain, absl::Time* expires) {
  const char* wrong = WhatIsWrong(authorities, chain, expires);
  if (wrong == nullptr) return absl::OkStatus();
  return Wrong(paths.certificate,
               absl::StrFormat("is not accepted by the authorities of %s: %s", paths.authorities, wrong));
}

// Empty: there is no such file.
absl::StatusOr<std::string> ReadRevoked(const Paths& paths, const std::vector<Certificate>& authorities) {
  if (access(paths.revoked.c_str(), F_OK) != 0 && errno == ENOENT) return std::string();
  CAIRN_ASSIGN_OR_RETURN(std::string text, Read(paths.revoked));
  if (const auto read = Revocations::Parse(text, authorities); !read.ok())
    return Wrong(paths.revoked, std::string(read.status().message()));
  return text;
}

// Ignores trust; checks only the dates.
absl::Status CheckDates(const Paths& paths, const std::vector<Certificate>& chain, absl::Time* expires) {
  const char* wrong = WhatIsWrong(chain, chain, expires);
  return wrong == nullptr ? absl::OkStatus() : Wrong(paths.certificate, wrong);
}

absl::StatusOr<int> InMemory(const std::string& text) {
  const int fd = memfd_create("cairn-tls", MFD_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "certificates cannot be held in memory");
  if (write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return fd;
  const absl::Status status = absl::ErrnoToStatus(errno, "certificates cannot be held in memory");
  close(fd);
  return status;
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& directory, TlsOwner owner) {
  const Paths paths(directory);
  CAIRN_ASSIGN_OR_RETURN(std::string authorities, Read(paths.authorities));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Certificate> trusted, Certificates(paths.authorities, authorities));
  const auto missing = [](const std::string& path) { return access(path.c_str(), F_OK) != 0 && errno == ENOENT; };
  if (owner == TlsOwner::kTokenUser && missing(paths.certificate) && missing(paths.key)) {
    return TlsFiles{.authorities = std::move(authorities), .expires = absl::InfiniteFuture()};
  }
  if (owner == TlsOwner::kUser && missing(paths.certificate) && missing(paths.key)) {
    return Wrong(paths.certificate,
                 "cannot be read: No such file or directory; with ca.crt alone a token is needed (--token-file, "
                 "$CAIRN_TOKEN)");
  }
  CAIRN_ASSIGN_OR_RETURN(std::string revoked, ReadRevoked(paths, trusted));
  CAIRN_ASSIGN_OR_RETURN(const std::string certificate, Read(paths.certificate));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, Certificates(paths.certificate, certificate));
  CAIRN_ASSIGN_OR_RETURN(const std::string key, Read(paths.key));
  CAIRN_RETURN_IF_ERROR(CheckKey(paths, key, chain[0].get()));
  absl::Time expires = absl::InfiniteFuture();
  CAIRN_RETURN_IF_ERROR(owner == TlsOwner::kNode ? CheckChain(paths, trusted, chain, &expires)
                                                 : CheckDates(paths, chain, &expires));
  return TlsFiles{.authorities = std::move(authorities),
                  .identity = absl::StrCat(certificate, "\n", key),
                  .uris = UrisOf(chain[0].get()),
                  .revoked = std::move(revoked),
                  .expires = expires};
}

void TlsRenewal::Look() {
  const absl::Status status = Renew();
  if (!status.ok() && status == wrong_ && status != said_) {
    notice_(true, absl::StrCat(status.message(), "; connections still use the previous files"));
    said_ = status;
  }
  if (status.ok()) said_ = status;
  wrong_ = status;
}

absl::Status TlsRenewal::Renew() {
  CAIRN_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(directory_, owner_));
  if (files == in_use_) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(take_(files));
  in_use_ = std::move(files);
  notice_(false, absl::StrCat("--tls-dir: ", directory_, ": the renewed files are in use"));
  if (const std::string open = KeyIsOpenToOthers(directory_); !open.empty()) notice_(true, open);
  return absl::OkStatus();
}

std::string KeyIsOpenToOthers(const std::string& directory) {
  const std::string path = Paths(directory).key;
  struct stat around {
  }, found{};
  if (stat(directory.c_str(), &around) != 0 || (around.st_mode & S_IXOTH) == 0)
    return "";  // no other user can read the file
  if (stat(path.c_str(), &found) != 0 || (found.st_mode & S_IROTH) == 0) return "";
  return absl::StrFormat("--tls-dir: %s: mode %03o: any user of this machine can read the key; chmod o-r it", path,
                         found.st_mode & 0777);
}

absl::StatusOr<std::unique_ptr<ShownFile>> ShownFile::Create(const std::string& text) {
  CAIRN_ASSIGN_OR_RETURN(const int fd, InMemory(text));
  return std::unique_ptr<ShownFile>(new ShownFile(fd));
}

ShownFile::~ShownFile() { close(fd_); }

std::string ShownFile::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

// Switches each path to its new file atomically; a reader that has the old file open reads it to its end. All memory is
// allocated before the first path changes; after that no system call can fail for lack of it.
absl::Status ShownFile::ReplaceAll(const std::vector<std::pair<ShownFile*, const std::string*>>& texts) {
  std::vector<int> made;
  absl::Status status;
  for (size_t i = 0; i < texts.size() && status.ok(); ++i) {
    const absl::StatusOr<int> fd = InMemory(*texts[i].second);
    if (fd.ok()) made.push_back(*fd);
    status = fd.status();
  }
  for (size_t i = 0; i < texts.size() && status.ok(); ++i) {
    int to = -1;
    do {
      to = dup3(made[i], texts[i].first->fd_, O_CLOEXEC);
    } while (to < 0 && (errno == EINTR || errno == EBUSY));
    if (to < 0) status = absl::ErrnoToStatus(errno, "certificates cannot be replaced");
  }
  for (const int fd : made) close(fd);
  return status;
}

}  // namespace cairn

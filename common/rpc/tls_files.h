// The files of a --tls-dir (credentials.h): reads and checks them by the same rules for gRPC and for HTTP, reloads
// them, and presents them to gRPC.
//
// Thread rule: ReadTlsFiles from any thread; TlsRenewal and ReplaceAll from one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

struct TlsFiles {
  std::string authorities;  // PEM, of ca.crt
  std::string identity;  // PEM, of tls.crt followed by tls.key, so that a certificate always comes with its key; or ""
  std::vector<std::string> uris;  // of the certificate
  std::string revoked;            // PEM, of crl.pem; empty: there is no such file
  absl::Time expires;  // the first of the certificates that tls.crt rests on does; of a node, the authority's too

  bool operator==(const TlsFiles&) const = default;
};

// The owner of tls.crt. A node's certificate is verified by nodes with the same ca.crt, so ca.crt must accept it. A
// user's is verified by nodes only, which may know an authority or intermediate that the user's own ca.crt lacks. A
// user with a token needs none: without tls.crt and tls.key the identity is empty.
enum class TlsOwner { kNode, kUser, kTokenUser };

// crl.pem, if it is there, is checked too (revocations.h).
// Errors: INVALID_ARGUMENT names the file that would make every handshake fail, and the problem.
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& directory, TlsOwner owner);

// Receives notices about the files: renewed ones are in use, or (warnings) they are unusable, or other users can
// read the key.
using TlsNotice = std::function<void(bool warning, const std::string& text)>;

// Reloads the files and passes on usable ones. Invariant: a problem is reported once, and only if two looks in a row
// found it: files may be read while they are being replaced.
class TlsRenewal {
 public:
  // in_use: the result of ReadTlsFiles. take: puts renewed files to use, all or none of them.
  TlsRenewal(std::string directory, TlsOwner owner, TlsFiles in_use, std::function<absl::Status(const TlsFiles&)> take,
             TlsNotice notice)
      : directory_(std::move(directory)),
        owner_(owner),
        in_use_(std::move(in_use)),
        take_(std::move(take)),
        notice_(std::move(notice)) {}

  void Look();

 private:
  absl::Status Renew();

  const std::string directory_;
  const TlsOwner owner_;
  TlsFiles in_use_;
  const std::function<absl::Status(const TlsFiles&)> take_;
  const TlsNotice notice_;
  absl::Status wrong_, said_;
};

// A warning about the mode of `directory`/tls.key; empty if it or the directory is closed to users other than
// its owner and group.
std::string KeyIsOpenToOthers(const std::string& directory);

// An in-memory file with a path that this process can open. Its text is replaced atomically: readers never see a
// part.
class ShownFile {
 public:
  // Errors: RESOURCE_EXHAUSTED and other system errors: no memory, no file descriptor.
  static absl::StatusOr<std::unique_ptr<ShownFile>> Create(const std::string& text);
  ~ShownFile();
  ShownFile(const ShownFile&) = delete;
  ShownFile& operator=(const ShownFile&) = delete;

  std::string path() const;

  // Replaces the text of all files or, with an error as in Create, of none. One by one: a reader of several files may
  // see old and new ones.
  static absl::Status ReplaceAll(const std::vector<std::pair<ShownFile*, const std::string*>>& texts);

 private:
  explicit ShownFile(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace cairn

// The files of a --tls-dir (credentials.h): read and checked by one rule for gRPC and for HTTP's pages, looked at
// again, and shown to gRPC.
//
// Thread rule: ReadTlsFiles from any thread; TlsRenewal and ReplaceAll from one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace cairn {

struct TlsFiles {
  std::string authorities;  // PEM, of ca.crt
  std::string identity;     // PEM, of tls.crt with tls.key behind it: a certificate is never seen without its own key

  bool operator==(const TlsFiles&) const = default;
};

// Whose certificate tls.crt is: a node's is asked for by nodes that have its ca.crt, so that this has to accept it. A
// user's is asked for by nodes alone: they may know him by an authority, or by one between, that his own ca.crt lacks.
enum class TlsOwner { kNode, kUser };

// Errors: INVALID_ARGUMENT names the file that every handshake would fail of, and says what is wrong with it.
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& directory, TlsOwner owner);

// What there is to say of the files: that renewed ones are in use, or (a warning) that they cannot be, that others can
// read the key.
using TlsNotice = std::function<void(bool warning, const std::string& text)>;

// Reads the files again and again, and hands on those that can work. Invariant: what is wrong is said once, and only
// where it was so twice: files may be read while they are being replaced.
class TlsRenewal {
 public:
  // in_use: what ReadTlsFiles said. take: puts renewed files to use, all or none of them.
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

// What is to be said of the mode of `directory`/tls.key; empty where it or the directory is closed to users other than
// its owner and group.
std::string KeyIsOpenToOthers(const std::string& directory);

// A path for readers of this process that opens to the whole of one text, in memory: it is replaced at once, never in
// part.
class ShownFile {
 public:
  // Errors: RESOURCE_EXHAUSTED and others of the system: no memory, no file descriptor.
  static absl::StatusOr<std::unique_ptr<ShownFile>> Create(const std::string& text);
  ~ShownFile();
  ShownFile(const ShownFile&) = delete;
  ShownFile& operator=(const ShownFile&) = delete;

  std::string path() const;

  // Each file's new text: of all or, with an error as Create's, of none. One after the other: a reader of several may
  // come between.
  static absl::Status ReplaceAll(const std::vector<std::pair<ShownFile*, const std::string*>>& texts);

 private:
  explicit ShownFile(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace cairn

// The files of a --tls-dir (credentials.h): read, checked, and shown to gRPC.
//
// Thread rule: ReadTlsFiles from any thread; a ShownFile's Replace from one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"

namespace cairn {

struct TlsFiles {
  std::string authorities;  // PEM, of ca.crt
  std::string identity;     // PEM, of tls.crt with tls.key behind it: a certificate is never seen without its own key

  bool operator==(const TlsFiles&) const = default;
};

// Errors: INVALID_ARGUMENT names the file that every handshake would fail of, and says what is wrong with it.
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& directory);

// What is to be said of the mode of `directory`/tls.key; empty where it or the directory is closed to users other than its owner and group.
std::string KeyIsOpenToOthers(const std::string& directory);

// A path for readers of this process that opens to the whole of one text, in memory: Replace changes it at once, never in part.
class ShownFile {
 public:
  // Errors: RESOURCE_EXHAUSTED and others of the system: no memory, no file descriptor.
  static absl::StatusOr<std::unique_ptr<ShownFile>> Create(const std::string& text);
  ~ShownFile();
  ShownFile(const ShownFile&) = delete;
  ShownFile& operator=(const ShownFile&) = delete;

  std::string path() const;
  absl::Status Replace(const std::string& text);

 private:
  explicit ShownFile(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace cairn

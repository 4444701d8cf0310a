#include "server/node/node_name.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/rpc/daemon.h"

namespace cairn {
namespace {

std::filesystem::path FileOf(const std::string& data_dir) { return std::filesystem::path(data_dir) / "name"; }

// Empty: there is none.
std::string KeptName(const std::string& data_dir) {
  std::ifstream in(FileOf(data_dir));
  std::string name;
  std::getline(in, name);
  return name;
}

}  // namespace

absl::Status KeepNodeName(const std::string& data_dir, const std::string& name) {
  if (KeptName(data_dir) == name) return absl::OkStatus();
  const std::string file = FileOf(data_dir).string();
  return WriteFileWhole(file, [&](const std::string& beside) {
    std::ofstream out(beside, std::ios::trunc);
    out << name << "\n";
    out.close();
    return out ? absl::OkStatus() : absl::PermissionDeniedError(absl::StrCat("cannot write ", file));
  });
}

absl::StatusOr<std::string> ChooseNodeName(const NodeNameRequest& request, const Caller& caller) {
  const std::string kept = KeptName(request.data_dir);
  if (kept.empty()) {
    if (!request.given.empty()) return request.given;
    if (request.joined) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "data-dir %s: it is that of a ps that was started with --name, and the name is not kept there yet: start it "
          "with the same --name once more (`cairn nodes` lists it), or use an empty directory",
          request.data_dir));
    }
    const std::string name = NewNodeName("ps", CallerRole::kPs);
    CAIRN_RETURN_IF_ERROR(Annotate(KeepNodeName(request.data_dir, name), "data-dir"));
    return name;
  }
  if (!request.given.empty() && request.given != kept) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data-dir %s: it is that of ps \"%s\", not of \"%s\"; under another name its partitions would not be "
        "used: start it with --name %s, or use an empty directory for \"%s\"",
        request.data_dir, kept, request.given, kept, request.given));
  }
  if (const absl::Status fits = CheckNodeName(CallerRole::kPs, kept, caller); !fits.ok()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data-dir %s: it is that of ps \"%s\", but %s; make a certificate for that name "
                        "(deploy/make_certs.sh DIR ps:%s), or use an empty directory",
                        request.data_dir, kept, fits.message(), kept));
  }
  return kept;
}

}  // namespace cairn

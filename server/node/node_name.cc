#include "server/node/node_name.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/rpc/daemon.h"

namespace cairn {
namespace {

std::filesystem::path FileOf(const std::string& data_dir) { return std::filesystem::path(data_dir) / "name"; }

constexpr char kTaken[] = "taken";

struct KeptName {
  std::string name;  // empty: there is none
  bool taken = false;
};

KeptName ReadKept(const std::string& data_dir) {
  std::ifstream in(FileOf(data_dir));
  KeptName kept;
  std::string mark;
  std::getline(in, kept.name);
  std::getline(in, mark);
  kept.taken = mark == kTaken;
  return kept;
}

absl::Status WriteName(const std::string& data_dir, const std::string& text) {
  const std::string file = FileOf(data_dir).string();
  return WriteFileWhole(file, [&](const std::string& beside) {
    std::ofstream out(beside, std::ios::trunc);
    out << text;
    out.close();
    return out ? absl::OkStatus() : absl::PermissionDeniedError(absl::StrCat("cannot write ", file));
  });
}

}  // namespace

absl::Status KeepNodeName(const std::string& data_dir, const std::string& name) {
  const KeptName kept = ReadKept(data_dir);
  if (kept.taken && kept.name == name) return absl::OkStatus();
  if (!kept.name.empty() && kept.name != name) {
    LogWarning("data-dir %s: the name kept there was \"%s\"; it is \"%s\" from now on", data_dir, kept.name, name);
  }
  return WriteName(data_dir, absl::StrCat(name, "\n", kTaken, "\n"));
}

absl::StatusOr<std::string> ChooseNodeName(const NodeNameRequest& request, const Caller& caller) {
  const auto [kept, taken] = ReadKept(request.data_dir);
  if (!request.given.empty() && !taken) return request.given;
  if (kept.empty()) {
    if (request.joined) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "data-dir %s: it is that of a ps that was started with --name, and the name is not kept there yet: start it "
          "with the same --name once more (`cairn nodes` lists it), or use an empty directory",
          request.data_dir));
    }
    const std::string name = NewNodeName("ps", CallerRole::kPs);
    CAIRN_RETURN_IF_ERROR(Annotate(WriteName(request.data_dir, name + "\n"), "data-dir"));
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

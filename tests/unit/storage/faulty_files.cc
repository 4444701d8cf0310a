#include "tests/unit/storage/faulty_files.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <utility>

#include "tests/unit/storage/faulty_disk.h"

namespace cairn {

namespace faulty {

Disk& TheDisk() {
  static Disk* const disk = new Disk;  // calls may come after the end of main
  return *disk;
}

}  // namespace faulty

using faulty::Change;
using faulty::Disk;
using faulty::Node;
using faulty::NodePtr;
using faulty::TheDisk;

namespace {

namespace fs = std::filesystem;

NodePtr Read(const fs::path& path) {
  auto node = std::make_shared<Node>();
  node->folder = fs::is_directory(path);
  if (!node->folder) {
    std::ifstream in(path, std::ios::binary);
    node->synced.assign(std::istreambuf_iterator<char>(in), {});
    return node;
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    node->names[entry.path().filename().string()] = Read(entry.path());
  }
  node->durable = node->names;
  return node;
}

void WriteOut(const Node& node, const std::string& path, double share, std::mt19937& rng) {
  const auto survives = [&] { return std::uniform_real_distribution<>(0, 1)(rng) < share; };
  if (!node.folder) {
    std::string bytes = node.synced;
    for (const Change& change : node.pending) {
      if (survives()) Apply(change, bytes);
    }
    std::ofstream(path, std::ios::binary) << bytes;
    return;
  }
  fs::create_directory(path);
  std::map<std::string, NodePtr> names = node.durable;
  for (const Change& change : node.pending) {
    if (!survives()) break;
    Apply(change, names);
  }
  for (const auto& [name, child] : names) WriteOut(*child, path + "/" + name, share, rng);
}

}  // namespace

FaultyFiles& FaultyFiles::Instance() {
  static FaultyFiles instance;
  return instance;
}

void FaultyFiles::Watch(const std::string& folder, bool remember) {
  Stop();
  NodePtr tree = remember ? Read(folder) : nullptr;
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  disk.root = folder;
  disk.tree = std::move(tree);
  disk.remember = remember;
  disk.open.clear();
  disk.calls = 0;
  disk.fail_at = disk.power_off_at = UINT64_MAX;
  disk.failed = false;
  disk.on_sync = nullptr;
  disk.on = true;
}

void FaultyFiles::Stop() {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  disk.on = false;
}

uint64_t FaultyFiles::calls() const {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  return disk.calls;
}

void FaultyFiles::FailCall(uint64_t number, FaultKind kind) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  disk.fail_at = number;
  disk.kind = kind;
}

bool FaultyFiles::failed() const {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  return disk.failed;
}

void FaultyFiles::OnSync(std::function<void(const std::string&)> hook) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  disk.on_sync = std::move(hook);
}

void FaultyFiles::CutPower(uint64_t at_call) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  disk.power_off_at = at_call;
}

void FaultyFiles::RestoreTo(const std::string& folder, double share, uint32_t seed) const {
  NodePtr tree;
  {
    Disk& disk = TheDisk();
    const std::unique_lock<std::mutex> lock(disk.mutex);
    tree = disk.tree;
  }
  std::mt19937 rng(seed);
  WriteOut(*tree, folder, share, rng);
}

namespace {

// For a daemon that has this file as a preloaded library:
//   CAIRN_FAULT_FOLDER=/dir CAIRN_FAULT_CALL=17 CAIRN_FAULT_KIND=io|no_space|short
[[gnu::constructor]] void FromEnvironment() {
  const char *folder = getenv("CAIRN_FAULT_FOLDER"), *call = getenv("CAIRN_FAULT_CALL"),
             *kind = getenv("CAIRN_FAULT_KIND");
  if (folder == nullptr || call == nullptr || kind == nullptr) return;
  FaultyFiles::Instance().Watch(folder, /*remember=*/false);
  FaultyFiles::Instance().FailCall(std::strtoull(call, nullptr, 10), std::strcmp(kind, "io") == 0 ? FaultKind::kIo
                                                                     : std::strcmp(kind, "short") == 0
                                                                         ? FaultKind::kShort
                                                                         : FaultKind::kNoSpace);
}

}  // namespace
}  // namespace cairn

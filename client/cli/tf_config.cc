#include "client/cli/tf_config.h"

#include <arpa/inet.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/limits.h"
#include "common/rpc/address.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat("TF_CONFIG: ", args...));
}

bool IsType(const std::string& type) {
  return type == "chief" || type == "worker" || type == "ps" || type == "evaluator";
}

std::string TypeOf(const std::string& type) { return type == "master" ? "chief" : type; }

absl::Status CheckAddress(const std::string& field, const Json& value) {
  if (!value.is_string()) return Bad(field, ": is not text; give host:port");
  const std::string address = value.get<std::string>();
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return Bad(field, ": \"", address, "\" is not a host:port");
  }
  return absl::OkStatus();
}

absl::Status ReadType(const std::string& type, const Json& entries, TfConfig& config) {
  const std::string field = absl::StrCat("cluster.", type);
  std::map<int, std::string>& into = config.cluster[TypeOf(type)];
  if (!into.empty()) return Bad(field, ": cluster.chief is there too; they are the same");
  if (entries.is_null()) return absl::OkStatus();  // the operator writes null for an empty list
  if (!entries.is_array() && !entries.is_object()) return Bad(field, ": is not a list of addresses");
  int next = 0;
  for (const auto& [key, value] : entries.items()) {
    int index = next++;
    if (entries.is_object() && (!absl::SimpleAtoi(key, &index) || index < 0)) {
      return Bad(field, ": \"", key, "\" is not an index");
    }
    if (index > kTfConfigIndexMax) return Bad(field, ": index ", index, " is more than ", kTfConfigIndexMax);
    CAIRN_RETURN_IF_ERROR(CheckAddress(absl::StrCat(field, "[", index, "]"), value));
    into[index] = value.get<std::string>();
  }
  if (TypeOf(type) == "chief" && into.size() > 1)
    return Bad(field, ": has ", into.size(), " entries, but there is one chief");
  return absl::OkStatus();
}

absl::Status ReadCluster(const Json& json, TfConfig& config) {
  auto cluster = json.find("cluster");
  if (cluster == json.end()) cluster = json.find("sparseCluster");  // the operator's name for it
  if (cluster == json.end()) return Bad("cluster: is missing");
  if (!cluster->is_object()) return Bad("cluster: is not an object of lists of addresses");
  for (const auto& [type, entries] : cluster->items()) {
    if (!IsType(TypeOf(type))) return Bad("cluster.", type, ": is not one of chief, worker, ps, evaluator");
    CAIRN_RETURN_IF_ERROR(ReadType(type, entries, config));
  }
  std::erase_if(config.cluster, [](const auto& entry) { return entry.second.empty(); });
  std::map<std::string, std::string> seen;  // by address
  for (const auto& [type, entries] : config.cluster) {
    for (const auto& [index, address] : entries) {
      const std::string field = absl::StrCat("cluster.", type, "[", index, "]");
      const auto [known, news] = seen.emplace(address, field);
      if (!news) return Bad(field, ": ", address, " is ", known->second, " too");
    }
  }
  return absl::OkStatus();
}

// In the sparse form a ps sees only its own address, whatever its index is.
bool KnowsOnlyItself(const TfConfig& config) {
  return config.cluster.size() == 1 && config.cluster.contains("ps") && config.cluster.at("ps").size() == 1;
}

absl::Status ReadTask(const Json& json, TfConfig& config) {
  const auto task = json.find("task");
  if (task == json.end()) return Bad("task: is missing");
  if (!task->is_object()) return Bad("task: is not an object with type and index");
  const auto type = task->find("type");
  if (type == task->end() || !type->is_string())
    return Bad("task.type: is missing; give chief, worker, ps or evaluator");
  config.task_type = TypeOf(type->get<std::string>());
  if (!IsType(config.task_type)) {
    return Bad("task.type: \"", config.task_type, "\" is not one of chief, worker, ps, evaluator");
  }
  const auto index = task->find("index");
  if (index != task->end()) {
    const bool number = index->is_number_integer() ||
                        (index->is_string() && absl::SimpleAtoi(index->get<std::string>(), &config.task_index));
    if (!number) return Bad("task.index: is not a number");
    if (index->is_number_integer()) {
      const int64_t value = index->get<int64_t>();
      if (value < 0 || value > kTfConfigIndexMax)
        return Bad("task.index: ", value, " is not within 0 .. ", kTfConfigIndexMax);
      config.task_index = static_cast<int>(value);
    }
    if (config.task_index < 0) return Bad("task.index: ", config.task_index, " is not within 0 .. ", kTfConfigIndexMax);
  } else if (config.task_type != "chief" && config.task_type != "evaluator") {
    return Bad("task.index: is missing");
  }
  const auto entries = config.cluster.find(config.task_type);
  if (KnowsOnlyItself(config) && config.task_type == "ps") {
    const std::string own = entries->second.begin()->second;
    entries->second = {{config.task_index, own}};
    return absl::OkStatus();
  }
  if (entries == config.cluster.end()) {
    if (config.task_type == "evaluator") return absl::OkStatus();  // TFJob does not list it in the cluster
    return Bad("task.type: \"", config.task_type, "\", but there is no cluster.", config.task_type);
  }
  if (entries->second.contains(config.task_index)) return absl::OkStatus();
  return Bad("task.index: ", config.task_index, ", but cluster.", config.task_type, " has ", entries->second.size(),
             entries->second.size() == 1 ? " entry" : " entries");
}

// How a daemon listens that others reach at `address`. If it is an IP address of this machine, the daemon listens
// there. A name may be that of a service, so the daemon listens on all interfaces and advertises the name.
std::vector<std::string> ListenFlags(const std::string& host, const std::string& port) {
  in_addr ignored;
  if (host == "localhost" || inet_pton(AF_INET, host.c_str(), &ignored) == 1 || host.front() == '[') {
    return {"--listen", absl::StrCat(host, ":", port)};
  }
  return {"--listen", absl::StrCat("0.0.0.0:", port), "--advertise",
          port == "0" ? host : absl::StrCat(host, ":", port)};
}

const char* HeadType(const TfConfig& config) { return config.cluster.contains("chief") ? "chief" : "worker"; }

std::string AddressOf(const TfConfig& config, const std::string& type, int index) {
  const auto entries = config.cluster.find(type);
  return entries == config.cluster.end() || !entries->second.contains(index) ? "" : entries->second.at(index);
}

// The address of worker 0, for a task whose TF_CONFIG does not have it (the sparse form). The operator names services
// JOB-TYPE-INDEX. Empty: the task's own address does not have that form.
std::string FirstWorkerBeside(const TfConfig& config) {
  const std::string own = AddressOf(config, config.task_type, config.task_index);
  const std::string task = absl::StrCat("-", config.task_type, "-", config.task_index);
  const std::string host = own.substr(0, own.find_first_of(".:"));
  if (!absl::EndsWith(host, task)) return "";
  return absl::StrCat(host.substr(0, host.size() - task.size()), "-worker-0", own.substr(host.size()));
}

}  // namespace

absl::StatusOr<TfConfig> ParseTfConfig(const std::string& text) {
  if (text.size() > kTfConfigBytesMax) return Bad("is longer than ", kTfConfigBytesMax, " bytes");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Bad("is not JSON");
  if (!json.is_object()) return Bad("is not a JSON object with cluster and task");
  TfConfig config;
  CAIRN_RETURN_IF_ERROR(ReadCluster(json, config));
  CAIRN_RETURN_IF_ERROR(ReadTask(json, config));
  return config;
}

bool IsHead(const TfConfig& config) { return config.task_type == HeadType(config) && config.task_index == 0; }

std::string CoordinatorOf(const TfConfig& config, const TfRunOptions& options) {
  if (!options.coordinator.empty()) return options.coordinator;
  const std::string head = AddressOf(config, HeadType(config), 0);
  return head.empty() ? FirstWorkerBeside(config) : head;
}

absl::StatusOr<std::vector<TfDaemon>> DaemonsOf(const TfConfig& config, const TfRunOptions& options) {
  const std::string coordinator = CoordinatorOf(config, options);
  if (coordinator.empty()) {
    return Bad(
        "cluster: has neither a chief nor worker 0, next to which the coordinator could run; add one, or set "
        "CAIRN_COORDINATOR");
  }
  const std::string& type = config.task_type;
  const std::string own = AddressOf(config, type, config.task_index);
  const std::string name = type == "chief" ? type : absl::StrCat(type, "-", config.task_index);

  std::vector<TfDaemon> daemons;
  const auto add = [&](const std::string& daemon, const char* program, std::vector<std::string> flags) {
    std::vector<std::string> argv = {absl::StrCat(options.bin_dir, "/", program), "--log-level", options.log_level};
    argv.insert(argv.end(), flags.begin(), flags.end());
    daemons.push_back({daemon, std::move(argv)});
  };
  const auto add_ps = [&](const std::string& ps, const std::string& port) {
    std::vector<std::string> flags = {
        "--coordinator", coordinator, "--name", ps, "--data-dir", absl::StrCat(options.dir, "/", ps)};
    for (std::string& flag : ListenFlags(HostOf(own), port)) flags.push_back(std::move(flag));
    add(ps, "cairn-ps", std::move(flags));
  };
  if (type == "ps") {
    add_ps(options.ps_prefix + name, own.substr(own.rfind(':') + 1));
    return daemons;
  }
  const bool computes = type != "evaluator";
  if (options.coordinator.empty() && IsHead(config)) {
    std::vector<std::string> flags = ListenFlags(HostOf(own), own.substr(own.rfind(':') + 1));
    flags.insert(flags.end(), {"--data-dir", absl::StrCat(options.dir, "/coordinator")});
    add("coordinator", "cairn-coordinator", std::move(flags));
  }
  if (computes && !config.cluster.contains("ps")) add_ps(absl::StrCat(options.ps_prefix, "ps-of-", name), "0");
  std::vector<std::string> flags = {"--coordinator", coordinator, "--name", options.worker_prefix + name};
  if (!computes) flags.insert(flags.end(), {"--role", "evaluator"});
  if (options.slots > 0) flags.insert(flags.end(), {"--slots", absl::StrCat(options.slots)});
  add(options.worker_prefix + name, "cairn-worker", std::move(flags));
  return daemons;
}

}  // namespace cairn

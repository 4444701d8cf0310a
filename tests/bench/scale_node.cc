#include "tests/bench/scale_node.h"

#include "absl/strings/str_cat.h"
#include "common/base/version.h"

namespace cairn::bench {

v1::Hello ScaleNode::Hello() const {
  v1::Hello hello;
  hello.set_name(name);
  hello.set_role(ps ? v1::PS : v1::WORKER);
  hello.set_host(host);
  hello.set_incarnation(static_cast<uint64_t>(number) + 1);
  hello.set_version(ProgramVersion());
  hello.set_interface(ClusterInterface());
  hello.set_serves_log(true);
  hello.set_serves_trace(true);
  if (ps) {
    hello.set_address(absl::StrCat(name, ".cluster.internal:7100"));
    return hello;
  }
  hello.set_slots(1);
  hello.set_device("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz");
  hello.set_device_kind(v1::CPU);
  hello.set_fingerprint("avx512, oneDNN 2.7.1");
  for (const v1::DataType type : {v1::FLOAT32, v1::BFLOAT16}) hello.add_compute_dtypes(type);
  return hello;
}

}  // namespace cairn::bench

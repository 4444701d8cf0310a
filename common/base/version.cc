#include "common/base/version.h"

namespace cairn {

const char* ProgramVersion() { return CAIRN_VERSION; }

uint32_t ClusterInterface() { return CAIRN_INTERFACE; }

}  // namespace cairn

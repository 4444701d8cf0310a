// Lowers the priority of background threads, so that training gets the processor.
#pragma once

namespace cairn {

// The calling thread gets about a tenth of a core while threads of normal priority compete for it, and whole cores
// otherwise. Any thread. Permanent: only an administrator may raise a priority again. Has no effect
// where the system refuses.
void LowerThreadPriority();

}  // namespace cairn

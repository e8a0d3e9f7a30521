// Says how often Philox4x32 mixes what kernels draw in each step: for dropout, and where an update rounds by
// chance. Seven rounds are the fewest that pass BigCrush (Salmon et al., SC 2011, table 2), and a third less
// arithmetic than ten, which bounds these kernels. What is drawn once, initial values and orders of samples,
// has ten.
#pragma once

namespace prun {

inline constexpr int rounds_of_steps = 7;

}  // namespace prun

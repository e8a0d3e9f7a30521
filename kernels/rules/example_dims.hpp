// Holds the dimensions of examples of ops, of which none is as long as another that it meets.
#pragma once

#include "prun/op_plugin.hpp"

namespace prun::example_dims {

inline const Dim b{"batch", 2}, s{"seq", 4}, h{"hidden", 6}, out{"out", 8}, v{"vocab", 10};
inline const Dim n{"heads", 2}, q{"queries", 2}, d{"head_dim", 4}, packed{"packed", 4};
inline const Dim routes{"routes", 8}, choice{"choice", 2}, experts{"experts", 8}, gate{"gate", 2},
    f{"ffn", 4};

}  // namespace prun::example_dims

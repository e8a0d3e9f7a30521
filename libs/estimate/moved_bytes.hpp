// Counts bytes of collectives and copies, for `prun plan` and for what calls share in a simulation. Example:
// fetching a bf16 layer of 100 MB moves 100 MB to the device; a copy to a drive counts for that tier instead.
#pragma once

#include "estimate/simulate.hpp"
#include "plan/plan.hpp"

namespace prun {

// ------------------------------------------------------------------- moved bytes

// Returns the bytes of a collective among `members` ranks: the larger of each rank's input and output.
std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members);

// Whether a copy is from the recipe device's memory to other memory, or back.
enum class Direction : std::uint8_t { stays, to_host, to_device };
Direction direction_of(const Program& program, const Plan& plan, const PlannedStep& step);

// Says whether a step copies from a tier.
bool reads_disk(const Program& program, const Plan& plan, const PlannedStep& step);

// Bytes copied in a step between device and host, each way, and bytes that tiers read and write.
struct MovedBytes {
  std::int64_t to_host = 0, to_device = 0;
  std::int64_t from_disk = 0, to_disk = 0;
};
MovedBytes moved_bytes(const Program& program, const Plan& plan);

// Returns the number of the link that a copy uses; -1: none. There is one for each direction between the
// device and other memory, and between each tier and memory.
std::int32_t link_of(const Program& program, const Plan& plan, const PlannedStep& step);

// Returns the bytes that pass through host memory: both ends of a copy, as far as they are there, and all
// operands of what a second device computes on the host's cores. The recipe's own device is left out, since
// caches hold much of what it uses. `on_host`: by device, whether its memory is the host's.
double host_bytes(const Program& program, const Plan& plan, const PlannedStep& step,
                  const Numbered<bool>& on_host);

// ------------------------------------------------------------------- links
// Measures the link between device and host in a simulated step: how long it is busy, and how long
// computation waits for it. From this `prun plan` suggests how many tokens a step would hide an offload.
// Example: fetches take 300 ms and forward 200 ms: 100 ms are exposed, unless microbatches get 1.5 times the
// tokens.

// Seconds of one direction.
struct LinkTimes {
  double busy = 0;
  double exposed = 0;  // part of `busy` for which the device's compute queues wait
};

struct Links {
  LinkTimes to_device, to_host;
  double passes = 0;  // of forward and backward
  bool grow = false;  // traffic grows with a microbatch's tokens, as activations do

  double exposed() const { return to_device.exposed + to_host.exposed; }
};

// Returns those of the last simulated step.
Links links_of(const RankTimes& rank);

// Returns the tokens a step at which passes hide the link; 0 if none does, or nothing is exposed.
double tokens_to_hide(const Links& links, double tokens);

}  // namespace prun

#include "generate/forward_rank.hpp"

#include <utility>

#include "train/loop/agreement.hpp"

namespace prun {

ForwardRank::ForwardRank(const Recipe& recipe, PluginHost& plugins, Membership membership, std::int64_t rank,
                         Purpose purpose)
    : plugins_(plugins),
      membership_(std::move(membership)),
      assembly_(recipe, plugins, rank, purpose),
      peers_(assembly_, plugins, membership_) {}

ForwardParts ForwardRank::parts() const {
  ForwardParts parts{assembly_, assembly_.program(), assembly_.plan(), nullptr, {}, {}};
  if (peers_.communicators()) parts.comms = peers_.communicators()->queues();
  if (membership_.probes) parts.probes = membership_.probes(assembly_, peers_.communicators());
  return parts;
}

LoadedCheckpoint ForwardRank::load(const PlanMemory& memory, const std::filesystem::path& where,
                                   const std::string& state) const {
  const std::unique_ptr<StartValues> base = open_base(assembly_.recipe(), assembly_.program(), plugins_);
  return load_parameters(assembly_, memory, where, announce_to_all(membership_, assembly_), base.get(),
                         state);
}

void ForwardRank::check_alike(const LoadedCheckpoint& loaded, const Samples& samples) const {
  if (peers_.communicators())
    check_start(assembly_.mesh(), plugins_, {loaded, nullptr, samples}, membership_.exchange);
}

std::vector<std::string> ForwardRank::exchange(std::string_view channel, const std::string& mine) const {
  if (!membership_.exchange) return {mine};
  return membership_.exchange(channel, assembly_.mesh().ranks(), mine);
}

}  // namespace prun

// Runs one rank of a recipe that trains nothing: its program, connected, with the parameters of a checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.hpp"
#include "train/loop/agreement.hpp"
#include "train/loop/evaluator.hpp"

namespace prun {

class ForwardRank {
 public:
  ForwardRank(const Recipe& recipe, PluginHost& plugins, Membership membership, std::int64_t rank,
              Purpose purpose);

  const Assembly& assembly() const { return assembly_; }
  ForwardParts parts() const;
  // Loads the parameters; every rank must call it.
  LoadedCheckpoint load(const PlanMemory& memory, const std::filesystem::path& where,
                        const std::string& state = {}) const;
  // Checks that all ranks have the same checkpoint and the same data; every rank must call it.
  void check_alike(const LoadedCheckpoint& loaded, const Samples& samples) const;
  // Sends each rank's text to all of them.
  std::vector<std::string> exchange(std::string_view channel, const std::string& mine) const;

 private:
  PluginHost& plugins_;
  Membership membership_;
  const Assembly assembly_;
  const Peers peers_;
};

}  // namespace prun

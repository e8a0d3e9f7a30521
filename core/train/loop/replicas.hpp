// Checks that what several ranks hold alike stays alike. A processor, a memory or a link that gives a wrong
// number once makes one of them train something else from then on, which no loss shows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "execute/communicators.hpp"
#include "execute/device_checksums.hpp"
#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/saved_state.hpp"

namespace prun {

class Replicas {
 public:
  // It is made before anything that lasts is written.
  Replicas(const Assembly& assembly, const PlanMemory& memory);

  // Compares, collectively over all ranks, while no step runs. Throws diverged on every rank: it names the
  // step, the first tensor that is not the same, and the ranks.
  void compare(std::int64_t step, const Exchange& exchange);
  // Returns the sums that were compared after that step, by number of the slices that this rank saves: these
  // bytes are written. The result is empty if it was another step; an entry is nothing if no other rank has
  // the slice.
  SavedSums saved_sums(std::int64_t step) const;

 private:
  // Names what this rank and those of the same `group` hold.
  struct Copy {
    std::string group, name;
    PersistentPart part;
  };

  void list_copies();
  void list_saved(std::vector<PersistentPart>& parts);
  void add(Id parameter, std::int32_t instance, const LocalPart& local_part, const std::string& suffix);
  void list_kept_states();
  template <class Alike>
  std::string group_along(std::string stand, Alike&& alike) const;
  std::string group_of(Id parameter, const LocalPart& local_part) const;
  std::string name_of(Id parameter, std::int32_t instance, const LocalPart& local_part,
                      const std::string& suffix) const;
  std::map<std::string, std::string> checksums();

  const Assembly& assembly_;
  std::vector<Copy> copies_;
  std::vector<std::size_t> saved_;  // slices that have copies; their sums come behind those
  SavedSums saved_sums_;
  std::int64_t compared_ = -1;  // last compared step
  std::optional<DeviceChecksums> checksums_;
};

}  // namespace prun

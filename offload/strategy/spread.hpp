// Decides which place has which tensors. A share is made of whole tensors, so that each layer has some here
// and some there, and all places work at the same time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "prun/plugin.hpp"
#include "shares.hpp"

namespace prun {

std::vector<Id> operands_of(const OpInfo& op);
// Returns the bytes of one whole instance.
double bytes_of(const ValueInfo& info);

// Finds out what touches the values of a program: updates, or others too. An exchange is the recipe's
// device's, wherever it stands.
class Users {
 public:
  explicit Users(ProgramRef program);

  bool only_updates_touch(Id value) const { return others_touch_.count(value) == 0; }
  bool updates_write(Id value) const { return updates_write_.count(value) != 0; }

 private:
  void add(const OpInfo& op);

  std::set<Id> others_touch_, updates_write_;
};

struct Sized {
  Id id = none;
  double bytes = 0;  // bytes of all instances
  bool of_layers = false;
};
// Returns the values that only updates touch.
std::vector<Sized> states_of(ProgramRef program, const Users& users);
std::vector<Sized> tensors_of(ProgramRef program, Role role);

class Spread {
 public:
  // Spreads tensors. Those that do not repeat go where most is to go, so that two stages of a pipeline that
  // share a parameter place it alike. Then the largest tensor comes first, each where most is missing: that
  // comes as near to the shares as whole tensors of layers can.
  Spread(std::vector<Sized> tensors, const Shares& shares);

  // Returns places by value.
  const std::map<Id, Place>& places() const { return place_of_; }
  bool in_one_place() const { return wanted_.size() == 1; }
  // Returns a text such as "67 % in the host's memory and 33 % on nvme".
  std::string said() const;

 private:
  struct Wanted {
    Place place;
    double wanted = 0, bytes = 0;
  };

  std::vector<Wanted> wanted_;
  double bytes_ = 0;
  std::map<Id, Place> place_of_;
};

}  // namespace prun

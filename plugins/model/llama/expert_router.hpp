// Builds the router of a layer with experts: it chooses some of them for each position, says what each
// counts, and keeps their loads even.
#pragma once

#include "family.hpp"
#include "part.hpp"
#include "prun/model.hpp"

namespace prun {

// Holds the numbers of each position's experts, and what they are weighted with.
struct ChosenExperts {
  Id index = none, weight = none;
};

class ExpertRouter {
 public:
  explicit ExpertRouter(const Options& options);

  std::int64_t choices() const { return choices_; }
  bool has_bias() const { return bias_; }
  // Says whether anything keeps loads even.
  bool balances() const { return bias_ || balance_ != 0 || z_ != 0; }
  // Says whether the weights of a position's only choice are all the same.
  bool weighs_alike() const { return choices_ == 1 && normalise_; }
  // Throws where groups of experts do not fit their number.
  void check_groups() const;

  // x is the layer's input, normed; `biased` says that scores have biases, which weigh too.
  ChosenExperts build(const SegmentPart& s, const Dim& hidden, Id x, bool biased) const;
  void write_config(const Family& family, ConfigWriter& config) const;

 private:
  void balance(const SegmentPart& s, Id logits, Id index, Id bias) const;

  std::int64_t experts_, choices_;
  bool sigmoid_, normalise_, bias_;
  std::int64_t groups_, chosen_groups_, group_best_;
  double scale_;
  // These keep loads even.
  double bias_rate_, balance_, z_;
};

}  // namespace prun

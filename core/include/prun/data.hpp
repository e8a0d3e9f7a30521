// SPDX-License-Identifier: Apache-2.0
// A plugin of kind `data` gives samples of tokens by number. Shuffling, epochs and ranks are the core's
// business.
#pragma once

#include "prun/options.hpp"

namespace prun {

struct DataInfo {
  std::int64_t samples = 0;  // number of sequences of the requested length
  std::int64_t tokens = 0;   // number of all tokens
  std::int64_t vocab = 0;    // smallest vocabulary that holds every token; 0: unknown without reading
                             // everything
};

class Data {
 public:
  virtual ~Data() = default;
  // Opens the data. It is called once, before anything else.
  virtual DataInfo open(std::int64_t seq) = 0;
  // Fills `seq` tokens and targets of sample `index` in [0, samples). A negative target does not count. It is
  // called from one thread at a time, which need not be the one that called open().
  virtual void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) = 0;
  // Fills in, for data whose trait `roles` names roles ("user,assistant"), the number of the role that each
  // of the `seq` targets of a sample belongs to; for a target that does not count, it may be any. It is
  // called after read() of the same sample, if losses by role are asked for.
  virtual void roles(std::int64_t, std::uint8_t*) {}
};

class DataInterface {
 public:
  virtual Status open(std::int64_t seq, DataInfo* info) noexcept = 0;
  virtual Status read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) noexcept = 0;
  virtual Status roles(std::int64_t index, std::uint8_t* roles) noexcept = 0;

 protected:
  ~DataInterface() = default;
};

template <class Author>
class DataAdapter final : public DataInterface {
 public:
  explicit DataAdapter(const Options& options) : author_(options) {}
  Status open(std::int64_t seq, DataInfo* info) noexcept override {
    return guard([&] { *info = static_cast<Data&>(author_).open(seq); });
  }
  Status read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) noexcept override {
    return guard([&] { static_cast<Data&>(author_).read(index, tokens, targets); });
  }
  Status roles(std::int64_t index, std::uint8_t* roles) noexcept override {
    return guard([&] { static_cast<Data&>(author_).roles(index, roles); });
  }

 private:
  Author author_;
};

}  // namespace prun

// SPDX-License-Identifier: Apache-2.0
// Plugin kind `model`: builds the forward program over whole tensors. It knows nothing of parallelism.
#pragma once

#include <optional>

#include "prun/foreign.hpp"
#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

struct ModelContext {
  std::int64_t batch = 0;  // sequences of one microbatch over all data-parallel ranks
  std::int64_t seq = 0;    // tokens of one sequence
};

// An author derives a model from this; the constructor takes `const Options&`.
class Model {
 public:
  virtual ~Model() = default;
  virtual void build(const ModelContext& context, ProgramRef program) = 0;
  // Models that read Hugging Face folders override this; see prun/foreign.hpp.
  virtual void write_config(const ModelContext&, ConfigWriter&) const {
    throw_error(ErrorCode::unsupported, "this model says nothing of a config.json");
  }
  virtual ForeignWeights foreign_weights() const { return {}; }
};

class ModelInterface {
 public:
  virtual Status build(const ModelContext& context, const ProgramApi* api, void* program) noexcept = 0;
  virtual Status write_config(const ModelContext& context, const ConfigWriterApi* config) noexcept = 0;
  // The view is valid as long as the object lives, or until the next call.
  virtual Status foreign_weights(ForeignWeightsView* weights) noexcept = 0;

 protected:
  ~ModelInterface() = default;
};

template <class Author>
class ModelAdapter final : public ModelInterface {
 public:
  explicit ModelAdapter(const Options& options) : author_(options) {}
  Status build(const ModelContext& context, const ProgramApi* api, void* program) noexcept override {
    return guard([&] { static_cast<Model&>(author_).build(context, ProgramRef(api, program)); });
  }
  Status write_config(const ModelContext& context, const ConfigWriterApi* config) noexcept override {
    return guard([&] {
      ConfigWriter writer(*config);
      static_cast<const Model&>(author_).write_config(context, writer);
    });
  }
  Status foreign_weights(ForeignWeightsView* weights) noexcept override {
    return guard([&] {
      kept_.emplace(static_cast<const Model&>(author_).foreign_weights());
      *weights = kept_->view();
    });
  }

 private:
  Author author_;
  std::optional<KeptForeignWeights> kept_;
};

}  // namespace prun

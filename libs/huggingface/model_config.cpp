#include "huggingface/model_config.hpp"

#include "base/text.hpp"
#include "plugin/traits.hpp"

namespace prun {

ConfigValues options_from(const ConfigFile& config, const PluginLibrary& model) {
  const std::string name = describe(model.note());
  if (!trait_lists(model.note(), "reads", config.kind())) {
    const std::string kinds(trait_of(model.note(), "reads"));
    throw_error(ErrorCode::bad_input, config.path().string(), " is of model_type ", in_quotes(config.kind()),
                ", and ", name, kinds.empty() ? " reads no config.json" : " reads " + kinds);
  }
  ConfigValues values;
  try {
    model.read_config(config.api(), writer_to(values));
  } catch (const Error& error) {
    throw_error(error.code(), config.path().string(), ": ", error.what());
  }
  if (!values.nulls.empty())
    throw_error(ErrorCode::bad_input, name, " sets its option ", in_quotes(values.nulls.front()),
                " to null, which is no value of an option");
  return values;
}

ConfigValues written_config(ModelInterface& model, const ModelContext& context) {
  ConfigValues values;
  const ConfigWriterApi api = writer_to(values);
  raise(model.write_config(context, &api));
  return values;
}

}  // namespace prun

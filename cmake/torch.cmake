# The target hookline_libtorch: the libraries and headers of the installed PyTorch, as system headers without warnings.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import importlib.metadata as m, importlib.util as u; \
print(u.find_spec('torch').submodule_search_locations[0], m.version('torch'), sep=';', end='')"
  OUTPUT_VARIABLE torch RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  message(FATAL_ERROR "PyTorch is not installed for ${Python_EXECUTABLE}: pip install torch==2.13.0")
endif()
list(GET torch 0 torch_folder)
list(GET torch 1 torch_version)

add_library(hookline_libtorch INTERFACE)
target_include_directories(hookline_libtorch SYSTEM INTERFACE
  ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
foreach(library torch torch_cpu c10)
  target_link_libraries(hookline_libtorch INTERFACE ${torch_folder}/lib/lib${library}.so)
endforeach()

// Runs ONNX models: node onnx_run.js FOLDER JOBS, with onnxruntime-node in FOLDER/node_modules. JOBS is a JSON list of
//   {"model": path, "input": path of raw numbers, "type": "float32" or "int64", "dims": [...], "output": path for raw float32}
// and each output's shape is printed, a line each.
const fs = require('fs');
const path = require('path');
const [folder, listed] = process.argv.slice(2);
const ort = require(path.resolve(folder, 'node_modules', 'onnxruntime-node'));

async function main() {
  for (const job of JSON.parse(fs.readFileSync(listed))) {
    const session = await ort.InferenceSession.create(job.model, {intraOpNumThreads: 1, logSeverityLevel: 3});
    const bytes = fs.readFileSync(job.input);
    const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    const numbers = job.type === 'int64' ? new BigInt64Array(copy) : new Float32Array(copy);
    const outputs = await session.run({[session.inputNames[0]]: new ort.Tensor(job.type, numbers, job.dims)});
    const y = outputs[session.outputNames[0]];
    fs.writeFileSync(job.output, Buffer.from(y.data.buffer, y.data.byteOffset, y.data.byteLength));
    console.log(JSON.stringify(y.dims));
    await session.release();
  }
}

main().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
